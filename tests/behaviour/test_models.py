"""Models: handlers of a kind that is described by types, and objects that do not fit the types."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Optional, TypedDict

import msgspec
import pydantic
import pytest

import kopf
import kopf.testing
from tests.behaviour.objects import API, Objects
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.fastforward


@dataclasses.dataclass(frozen=True)
class Limits:
    cpu: kopf.Quantity = kopf.Quantity("500m")  # noqa: RUF009  # it is immutable
    timeout: kopf.Duration | None = None


class StructSpec(msgspec.Struct, frozen=True, rename="camel"):
    replica_count: int = 1
    limits: Limits = Limits()


@dataclasses.dataclass
class Status:
    phase: str | None = None
    handled: int = 0


class Struct(
    kopf.CustomResource[StructSpec, Status],
    group="kopf.dev",
    version="v1",
    kind="KopfExample",
    plural="kopfexamples",
):
    """An example."""


def enable_posting(settings: kopf.OperatorSettings) -> None:
    """But not of log messages."""
    settings.posting.enabled, settings.posting.loggers = True, False


def get_unfit(logs: Logs) -> list[str]:
    return [text for text in logs.get_messages(level=logging.WARNING) if "does not fit" in text]


async def test_arguments_are_decoded_where_they_are_annotated(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create(Struct)
    async def create_fn(spec: StructSpec, status: Status, old: Struct | None, new: Struct, **_: Any) -> None:
        calls.append((spec, status, old, new.spec, new.metadata.name))

    @kopf.on.create(Struct)
    async def plain_fn(spec: kopf.Spec, status: Any, **_: Any) -> None:
        calls.append((dict(spec), dict(status)))

    @kopf.on.update(Struct)
    def update_fn(spec: StructSpec, old: Struct, new: Struct | None, **_: Any) -> None:
        assert new is not None
        calls.append((old.spec.replica_count, new.spec.replica_count, spec is new.spec, spec))

    await operator.start_and_handle(kex, spec={"replicaCount": 2, "limits": {"timeout": "1m"}, "other": 1})
    spec = StructSpec(2, Limits(timeout=kopf.Duration("1m")))
    assert calls.items == [
        (spec, Status(), None, spec, None),
        ({"replicaCount": 2, "limits": {"timeout": "1m"}, "other": 1}, {}),
    ]
    await kex.change_and_wait(replicaCount=3)
    assert calls[2][:3] == (2, 3, False)


async def test_fields_are_decoded_by_their_own_types(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.field(Struct, field="spec.limits")
    async def field_fn(spec: StructSpec, old: Limits | None, new: Limits | None, **_: Any) -> None:
        calls.append((old, new))

        @kopf.subhandler()
        async def sub_fn(old: Limits | None, new: Limits, spec: StructSpec, **_: Any) -> None:
            calls.append((old, new.cpu.value, spec.replica_count))

    await operator.start_and_handle(kex, spec={"limits": {"cpu": 2}})
    assert calls == [(None, Limits(kopf.Quantity("2"))), (None, 2, 1)]


async def test_what_is_decoded_is_decoded_once_in_a_pass(operator: Operator, kex: Objects, calls: Calls) -> None:
    for id in ("a", "b"):

        @kopf.on.create(Struct, id=id)
        async def fn(spec: StructSpec, **_: Any) -> None:
            calls.append(spec)

    await operator.start(lifecycle=kopf.lifecycles.all_at_once)
    await kex.create_and_wait(spec={"replicaCount": 2})
    assert calls[0] is calls[1]


async def test_callbacks_are_decoded_for_too(operator: Operator, kex: Objects, calls: Calls) -> None:
    def is_large(spec: StructSpec, **_: Any) -> bool:
        return spec.replica_count > 1

    def is_wanted(value: Any, new: Struct, **_: Any) -> bool:
        return bool(value) and new.spec.replica_count < 9

    kopf.on.create(Struct, when=is_large)(calls.noting(lambda name, **_: name))
    kopf.on.field(Struct, field="spec.replicaCount", value=is_wanted, id="f")(
        calls.noting(lambda name, **_: f"f-{name}")
    )
    await operator.start_and_create(kex, "small", spec={})
    await kex.create_and_wait("large", spec={"replicaCount": 2})
    assert calls == ["large", "f-large"]


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.event, kopf.daemon, kopf.index])
async def test_handlers_wait_until_the_object_fits_their_callbacks(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    decorator: Any,
) -> None:
    def is_large(spec: StructSpec, **_: Any) -> bool:
        return spec.replica_count > 1

    options = {"initial_delay": lambda spec, **_: spec.replica_count} if decorator is kopf.daemon else {}
    for delay in options.values():
        delay.__annotations__["spec"] = StructSpec
    decorator(Struct, when=is_large, id="large", **options)(calls.noting(lambda name, **_: name))
    kopf.on.create(Struct, id="other")(calls.noting("other"))
    await operator.start_and_create(kex, "small", spec={"replicaCount": "text"})
    await kex.create("large", spec={"replicaCount": "text"})
    await calls.wait(lambda items: items.count("other") == 2)
    await asyncio.sleep(1000)
    assert len(get_unfit(logs)) == 2
    assert not logs.get_messages(level=logging.ERROR)
    await kex.merge({"spec": {"replicaCount": 1}}, "small")
    await kex.merge({"spec": {"replicaCount": 2}}, "large")
    await calls.wait(lambda items: "large" in items)
    assert "small" not in calls.items


class DictSpec(TypedDict, total=False):
    field: int


class Dict(
    kopf.CustomResource[DictSpec, dict[str, Any]],
    group="kopf.dev",
    version="v1",
    kind="KopfExample",
    plural="kopfexamples",
):
    pass


class PydanticSpec(pydantic.BaseModel):
    field: int = 0


class Pydantic(
    kopf.CustomResource[PydanticSpec, dict[str, Any]],
    group="kopf.dev",
    version="v1",
    kind="KopfExample",
    plural="kopfexamples",
):
    pass


@pytest.mark.parametrize(
    ("model", "hint", "reason"),
    [
        (Dict, DictSpec, "spec.field: Expected `int`, got `str`"),
        (Pydantic, PydanticSpec, "spec.field: Input should be a valid integer, unable to parse string as an integer"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_unfit_objects_wait_until_they_fit(
    operator: Operator,
    kex: Objects,
    api: API,
    calls: Calls,
    logs: Logs,
    model: Any,
    hint: Any,
    reason: str,
    is_async: bool,
) -> None:
    async def async_fn(reason: str, spec: Any, **_: Any) -> None:
        calls.append((str(reason), spec["field"] if hint is DictSpec else spec.field))

    def sync_fn(reason: str, spec: Any, **_: Any) -> None:
        calls.append((str(reason), spec["field"] if hint is DictSpec else spec.field))

    fn: Any = async_fn if is_async else sync_fn
    fn.__annotations__["spec"] = hint
    kopf.on.create(model, retries=1)(fn)
    kopf.on.create(model, id="other")(calls.noting("other"))
    operator.configure = enable_posting
    await operator.start_and_create(kex, "unfit", spec={"field": "text"})
    await kex.create_and_wait("fit", spec={"field": 1})
    await kex.merge({"metadata": {"labels": {"x": "y"}}}, "unfit")
    await asyncio.sleep(1000)
    assert get_unfit(logs) == [
        f"The object does not fit KopfExample of kopf.dev/v1: {reason}. Kopf handles it when it changes."
    ]
    assert calls.items.count("other") == 2
    [event] = [event for event in await api.list_events() if event["involvedObject"]["name"] == "unfit"]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ModelMismatch", 1)
    await kex.merge({"spec": {"field": 2}}, "unfit")
    await kex.wait_handled("unfit")
    assert [call for call in calls if call != "other"] == [("create", 1), ("create", 2)]


@pytest.mark.parametrize("lifecycle", [kopf.lifecycles.one_by_one, kopf.lifecycles.asap, kopf.lifecycles.all_at_once])
async def test_unfit_sub_handlers_hold_their_parents_and_nobody_else(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    lifecycle: Any,
) -> None:
    @kopf.on.create(Dict)
    async def parent_fn(**_: Any) -> None:
        calls.append("parent")

        @kopf.subhandler()
        async def unfit_fn(spec: DictSpec, **_: Any) -> None:
            calls.append(("unfit", spec["field"]))

        @kopf.subhandler()
        async def other_fn(**_: Any) -> None:
            calls.append("sub")

    kopf.on.create(Dict, id="other")(calls.noting("other"))
    await operator.start(lifecycle=lifecycle)
    await kex.create(spec={"field": "text"})
    await calls.wait(lambda items: {"parent", "sub", "other"} <= {*items})
    await asyncio.sleep(1000)
    assert calls.items.count("sub") == calls.items.count("other") == 1
    assert calls.items.count("parent") < 9
    assert len(get_unfit(logs)) == 1
    await kex.merge({"spec": {"field": 1}})
    await kex.wait_handled()
    assert ("unfit", 1) in calls.items


async def test_lifecycles_that_refuse_the_others_of_the_unfit_are_asked_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    refusals: list[float] = []

    def choose(handlers: Sequence[Any], **_: Any) -> Sequence[Any]:
        unfit = [handler for handler in handlers if handler.id == "unfit"]
        if unfit or len(refusals) == 3:
            return unfit or handlers
        refusals.append(asyncio.get_running_loop().time())
        return []

    @kopf.on.create(Dict, id="unfit")
    async def unfit_fn(spec: DictSpec, **_: Any) -> None:
        calls.append("unfit")

    kopf.on.create(Dict, id="other")(calls.noting("other"))
    await operator.start(lifecycle=choose)
    await kex.create(spec={"field": "text"})
    await calls.wait_length(1)
    assert refusals[2] - refusals[0] >= 2  # not in one go
    assert calls == ["other"]
    assert len(get_unfit(logs)) == 1


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("decorator", [kopf.daemon, kopf.timer])
async def test_daemons_and_timers_begin_when_the_object_fits(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    decorator: Any,
    is_async: bool,
) -> None:
    async def async_fn(spec: DictSpec, retry: int, **_: Any) -> None:
        calls.append((spec["field"], retry))

    def sync_fn(spec: DictSpec, retry: int, **_: Any) -> None:
        calls.append((spec["field"], retry))

    options = {"interval": 100} if decorator is kopf.timer else {}
    decorator(Dict, retries=1, **options)(async_fn if is_async else sync_fn)
    await operator.start_and_create(kex, "unfit", spec={"field": "text"})
    await asyncio.sleep(1000)
    assert len(get_unfit(logs)) == 1
    await kex.merge({"spec": {"field": 1}}, "unfit")
    await calls.wait_length(1)
    assert calls[0] == (1, 0)


async def test_daemons_that_wait_do_not_hold_the_deletion(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.daemon(Dict)
    async def daemon_fn(spec: DictSpec, **_: Any) -> None:
        pytest.fail("It does not fit.")

    await operator.start_and_create(kex, spec={"field": "text"})
    await logs.wait(".*does not fit.*")
    await kex.delete_and_wait()


async def test_deletions_wait_until_the_object_fits(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    @kopf.on.delete(Dict)
    async def delete_fn(spec: DictSpec, **_: Any) -> None:
        calls.append(spec["field"])

    await operator.start_and_handle(kex, spec={"field": 1})
    await kex.merge({"spec": {"field": "text"}})
    await kex.delete()
    await logs.wait(".*does not fit.*")
    await operator.restart()
    await logs.wait(".*does not fit.*", times=2)
    assert not calls.items
    await kex.merge({"spec": {"field": 2}})
    await kex.wait_gone()
    assert calls == [2]


async def test_half_handled_objects_go_on_when_they_fit_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """Also after a restart in the middle."""

    @kopf.on.create(Dict)
    async def create_fn(spec: DictSpec, retry: int, **_: Any) -> None:
        calls.append((spec["field"], retry))
        if retry < 1:
            raise kopf.TemporaryError("not yet", delay=100)

    await operator.start_and_call(kex, calls, spec={"field": 1})
    await kex.merge({"spec": {"field": "text"}})
    await logs.wait(".*does not fit.*")
    await operator.restart()
    await kex.merge({"spec": {"field": 2}})
    await kex.wait_handled()
    assert calls == [(1, 0), (2, 1)]


async def test_old_states_that_do_not_fit_are_none(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.update(Dict)
    async def update_fn(old: Dict | None, new: Dict, **_: Any) -> None:
        calls.append((old, new.spec))

    await operator.start_and_handle(kex, spec={"field": "text"})
    await kex.change_and_wait(field=1)
    assert calls == [(None, {"field": 1})]


async def test_raw_events_and_indices_of_unfit_objects(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    @kopf.on.event(Dict)
    async def event_fn(spec: DictSpec, name: str, **_: Any) -> None:
        calls.append((name, spec.get("field")))

    @kopf.index(Dict)
    async def fields(spec: DictSpec, name: str, **_: Any) -> dict[str, Any]:
        return {name: spec.get("field")}

    @kopf.on.event(Dict, id="look")
    async def look_fn(fields: kopf.Index[str, int], **_: Any) -> None:
        calls.append({key: [*values] for key, values in fields.items()})

    await operator.start_and_create(kex, spec={"field": 1})
    await calls.wait(lambda items: items[-1:] == [{"obj": [1]}])
    await kex.merge({"spec": {"field": "text"}})
    await calls.wait(lambda items: items[-1:] == [{}])
    await kex.merge({"spec": {"field": 2}})
    await calls.wait(lambda items: items[-1:] == [{"obj": [2]}])
    assert [call for call in calls if isinstance(call, tuple)] == [("obj", 1), ("obj", 2)]
    assert len(get_unfit(logs)) == 1


async def test_reconcilers_get_typed_values(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.reconcile(Dict)
    async def reconcile_fn(spec: DictSpec, **_: Any) -> Any:
        calls.append(spec["field"])
        yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"field": str(spec["field"])}}

    await operator.start_and_call(kex, calls, spec={"field": 1})
    assert calls[0] == 1


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (StructSpec, "takes 'spec' as StructSpec, but for Dict it is DictSpec: annotate it so, or leave it out."),
        (Status, "takes 'spec' as Status, but for Dict it is DictSpec"),
    ],
)
def test_annotations_by_other_types_are_refused(hint: Any, problem: str) -> None:
    async def fn(spec: Any, **_: Any) -> None: ...

    fn.__annotations__["spec"] = hint
    with pytest.raises(kopf.DeclarationError, match=problem):
        kopf.on.create(Dict, registry=kopf.OperatorRegistry())(fn)


def test_annotations_of_all_forms_are_understood() -> None:
    async def fn(spec: StructSpec | DictSpec, status: dict[str, Any], old: Any, new: Dict | None, **_: Any) -> None: ...

    assert Dict.find_decoders(fn, ()).keys() == {"spec", "new"}

    async def quoted(spec: "DictSpec", new: Optional["Dict"], **_: Any) -> None: ...  # noqa: UP037, UP045

    assert Dict.find_decoders(quoted, ()).keys() == {"spec", "new"}

    async def plain(spec: kopf.Spec, status: dict[str, Any], new: kopf.BodyEssence, **_: Any) -> None: ...

    assert Dict.find_decoders(plain, ()) == {}


def test_unit_calls_are_decoded() -> None:
    async def fn(spec: DictSpec, **_: Any) -> None:
        spec["field"] += 1

    registry = kopf.OperatorRegistry()
    kopf.on.create(Dict, registry=registry)(fn)
    run = kopf.testing.run_handler(fn, {"spec": {"field": 1}}, registry=registry)
    assert run.outcome == "succeeded"
    run = kopf.testing.run_handler(fn, {"spec": {"field": "text"}}, registry=registry)
    assert (run.outcome, run.delay) == ("retried", 0)
    assert "spec.field: Expected `int`, got `str`" in str(run.exception)


def test_admission_of_unfit_objects() -> None:
    async def fn(spec: DictSpec, old: Dict | None, **_: Any) -> None:
        assert spec["field"] == 1
        assert old is None

    registry = kopf.OperatorRegistry()
    kopf.on.validate(Dict, registry=registry)(fn)
    run = kopf.testing.run_handler(fn, {"spec": {"field": "text"}}, registry=registry)
    assert run.outcome == "denied"
    assert run.denial is not None
    assert run.denial["code"] == 422
    assert "spec.field" in run.denial["message"]
    # What is stored already, is to be mended.
    run = kopf.testing.run_handler(fn, {"spec": {"field": 1}}, old={"spec": {"field": "text"}}, registry=registry)
    assert run.outcome == "allowed"
