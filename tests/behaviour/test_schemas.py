"""Custom resources with strict schemas: what they do not know is dropped, what is wrong is refused."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, Objects, watch
from tests.behaviour.running import Calls, Logs, Operator, now

pytestmark = pytest.mark.fastforward


@pytest.fixture(params=[True, False], ids=["subresource", "regular"])
async def strict(request: pytest.FixtureRequest, operator: Operator, api: API) -> AsyncIterator[Objects]:
    """The objects of a kind that has one integer in its spec, and nothing in its status but one more integer."""
    crd = make_crd("StrictExample", "strictexamples", status=request.param)
    field = {"type": "object", "properties": {"field": {"type": "integer", "maximum": 100}}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": field, "status": field},
    }
    operator.cluster.apply(crd)
    async with watch(api, "StrictExample", "strictexamples") as objects:
        yield objects


async def test_results_that_are_dropped_by_the_schema_do_not_repeat_the_handling(
    operator: Operator,
    strict: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    for id in ("a", "b"):

        @kopf.on.create("strictexamples", id=id)
        @kopf.on.update("strictexamples", id=id)
        async def fn(reason: kopf.Reason, patch: kopf.Patch, **_: Any) -> str:
            calls.append(reason.value)
            patch.status["field"] = 1
            return "result"

    obj = await operator.start_and_handle(strict, spec={"field": 1, "unknown": "dropped"})
    assert obj["spec"] == {"field": 1}
    assert obj["status"] == {"field": 1}
    await strict.change_and_wait(field=2)
    await strict.create_and_wait("another", spec={"field": 1})
    assert calls == ["create", "create", "update", "update", "create", "create"]
    warnings = logs.get_messages(level=logging.WARNING)
    assert [warning.split(",")[0] for warning in warnings] == [
        "The API drops the field 'status.a'",
        "The API drops the field 'status.b'",
    ]


async def test_conditions_that_are_dropped_by_the_schema_are_warned_of(
    operator: Operator,
    strict: Objects,
    api: API,
    logs: Logs,
) -> None:
    operator.set("posting.enabled", True)
    operator.set("posting.loggers", True)

    @kopf.on.create("strictexamples")
    @kopf.on.update("strictexamples")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        kopf.conditions(patch)["Ready"] = kopf.Condition(True, "Up")

    await operator.start_and_handle(strict, spec={"field": 1})
    await strict.change_and_wait(field=2)
    [warning] = logs.get_messages(level=logging.WARNING)
    assert warning.startswith("The API drops the field 'status.conditions'")
    await operator.stop()
    assert [event["message"] for event in await api.list_events() if event["type"] == "Warning"] == [warning]


async def test_progress_in_a_status_that_is_dropped_is_not_needed(
    operator: Operator,
    strict: Objects,
    calls: Calls,
) -> None:
    """By default, the progress is in the annotations, which are not subject to schemas."""
    kopf.on.create("strictexamples")(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=100), times=3)
    )
    await operator.start_and_handle(strict, spec={"field": 1})
    assert calls == [0, 1, 2, 3]
    assert all("status" not in obj for obj in strict.get_history())


@pytest.mark.parametrize("stanza", ["spec", "status"])
async def test_refused_patches_of_handlers_are_reported_once_and_never_go_hot(
    operator: Operator,
    strict: Objects,
    calls: Calls,
    logs: Logs,
    stanza: str,
) -> None:
    @kopf.on.create("strictexamples")
    async def fn(patch: kopf.Patch, name: str, **_: Any) -> None:
        calls.append(name)
        patch.setdefault(stanza, {})["field"] = 101 if name == "bad" else 99

    logs.expected.append(rf"{stanza}\.field")
    await operator.start_and_create(strict, "bad", spec={"field": 1})
    await logs.wait(".*left alone.*", times=6)
    (error,) = logs.get_messages("bad", level=logging.WARNING)
    assert "101" in error
    assert "100" in error
    started = now()
    await strict.create("good", spec={"field": 1})
    await strict.wait(lambda obj: obj.get(stanza, {}).get("field") == 99, "good")
    assert now() - started < 5
    assert calls == ["bad", "good"]
    # It can still be deleted, of course.
    await strict.delete_and_wait("bad")


_INVALID = "spec.field: Invalid value"


async def test_refused_patches_name_those_who_made_them(
    operator: Operator,
    strict: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    """Of several handlers, it is the one of the refused field: neither those before nor those after it."""

    @kopf.on.create("strictexamples", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = 1
        patch.status["field"] = 1

    @kopf.on.create("strictexamples", id="two")
    async def two(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = 1000
        raise kopf.TemporaryError("not yet", delay=0)

    @kopf.on.create("strictexamples", id="three")
    async def three(patch: kopf.Patch, **_: Any) -> None:
        patch.meta.labels["label"] = "three"

    logs.expected.append(_INVALID)
    await operator.start(watching=("strictexamples",), lifecycle=kopf.lifecycles.all_at_once)
    await strict.create(spec={"field": 1})
    record = await logs.wait(f".*left alone for 1 seconds.*{_INVALID}.*")
    assert "(patched by Handler 'two')" in record.getMessage()
    assert "'one'" not in record.getMessage()
    assert "'three'" not in record.getMessage()


@pytest.mark.parametrize("way", ["fields", "functions"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("event", "Handler 'fn'"),
        ("sub", "Handler 'parent/fn'"),
        ("timer", "Timer 'fn'"),
        ("daemon", "Daemon 'fn'"),
    ],
)
async def test_refused_patches_of_other_handlers_name_these(
    operator: Operator,
    strict: Objects,
    logs: Logs,
    kind: str,
    name: str,
    way: str,
) -> None:
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        if way == "fields":
            patch.spec["field"] = 1000
        else:
            patch.fns.append(lambda body: body.update(spec={"field": 1000}))

    async def parent(patch: kopf.Patch, **_: Any) -> None:
        patch.meta.labels["label"] = "parent"
        kopf.register(fn, id="fn")

    match kind:
        case "event":
            kopf.on.event("strictexamples", id="fn")(fn)
        case "sub":
            kopf.on.create("strictexamples", id="parent")(parent)
        case "timer":
            kopf.timer("strictexamples", id="fn", interval=1000)(fn)
        case "daemon":
            kopf.daemon("strictexamples", id="fn")(fn)
    logs.expected.append(_INVALID)
    await operator.start_and_create(strict, spec={"field": 1})
    await logs.wait(rf".*{_INVALID}.*\(patched by {name}\).*")


async def test_nobody_is_blamed_for_what_others_made_invalid(operator: Operator, strict: Objects, logs: Logs) -> None:
    """The schema has become stricter than the object: it is not the handler, whatever it patches."""

    @kopf.on.create("strictexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = 2

    await strict.create(spec={"field": 1})
    crd = operator.cluster.get("customresourcedefinitions", "strictexamples.kopf.dev")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = ["field", "other"]
    operator.cluster.apply(crd)
    logs.expected.append("spec.other: Required value")
    await operator.start(watching=("strictexamples",))
    record = await logs.wait(".*left alone.*spec.other: Required value.*")
    assert "patched by" not in record.getMessage()


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_all_are_named_if_the_refused_fields_are_not(
    operator: Operator,
    strict: Objects,
    logs: Logs,
    status: int,
) -> None:
    @kopf.on.create("strictexamples", id="idle")
    async def idle(**_: Any) -> None:
        pass

    @kopf.on.create("strictexamples", id="one")
    @kopf.on.create("strictexamples", id="two")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = patch.spec.get("field", 0) + 1

    operator.cluster.faults.inject(status, verb="patch", resource="strictexamples", message="it is refused")
    logs.expected.append("it is refused")
    await operator.start(watching=("strictexamples",), lifecycle=kopf.lifecycles.all_at_once)
    await strict.create(spec={"field": 1})
    await logs.wait(".*left alone.*it is refused.*patched by Handler '(one|two)'.*")
    assert not logs.find(".*patched by[^)]*'idle'.*")
