"""Models: handlers of a kind that is described by types, and objects that do not fit the types."""
from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import kopf
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
        group="kopf.dev", version="v1", kind="KopfExample", plural="kopfexamples",
):
    """An example."""


def enable_posting(settings: kopf.OperatorSettings) -> None:
    """But not of log messages."""
    settings.posting.enabled, settings.posting.loggers = True, False


def get_unfit(logs: Logs) -> list[str]:
    return [text for text in logs.get_messages(level=logging.WARNING) if "does not fit" in text]


async def test_arguments_are_decoded_where_they_are_annotated(
        operator: Operator, kex: Objects, calls: Calls,
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
        calls.noting(lambda name, **_: f"f-{name}"))
    await operator.start()
    await kex.create("small", spec={})
    await kex.create_and_wait("large", spec={"replicaCount": 2})
    assert calls == ["large", "f-large"]


class DictSpec(TypedDict, total=False):
    field: int


class Dict(
        kopf.CustomResource[DictSpec, dict[str, Any]],
        group="kopf.dev", version="v1", kind="KopfExample", plural="kopfexamples",
):
    pass


class PydanticSpec(pydantic.BaseModel):
    field: int = 0


class Pydantic(
        kopf.CustomResource[PydanticSpec, dict[str, Any]],
        group="kopf.dev", version="v1", kind="KopfExample", plural="kopfexamples",
):
    pass


@pytest.mark.parametrize(("model", "hint", "reason"), [
    (Dict, DictSpec, "spec.field: Expected `int`, got `str`"),
    (Pydantic, PydanticSpec, "spec.field: Input should be a valid integer, unable to parse string as an integer"),
])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_unfit_objects_wait_until_they_fit(
        operator: Operator, kex: Objects, api: API, calls: Calls, logs: Logs,
        model: Any, hint: Any, reason: str, is_async: bool,
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
    await operator.start()
    await kex.create("unfit", spec={"field": "text"})
    await kex.create_and_wait("fit", spec={"field": 1})
    await kex.merge({"metadata": {"labels": {"x": "y"}}}, "unfit")
    await asyncio.sleep(1000)
    assert get_unfit(logs) == [f"The object does not fit KopfExample of kopf.dev/v1: {reason}. "
                               "It is handled when that is changed."]
    assert calls.items.count("other") == 2
    [event] = [event for event in await api.list_events() if event["involvedObject"]["name"] == "unfit"]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ModelMismatch", 1)
    await kex.merge({"spec": {"field": 2}}, "unfit")
    await kex.wait_handled("unfit")
    assert [call for call in calls if call != "other"] == [("create", 1), ("create", 2)]
