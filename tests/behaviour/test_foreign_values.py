"""Values that JSON has no form for: they are stored in some form, and it is said what, where, and by whom."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest

import kopf
from kopf._logging.once import Once
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Decorator, Logs, Operator, do_nothing

WARNING = "JSON has no form for some values of .*"
VALUES: dict[str, tuple[Any, Any]] = {
    "datetime": (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2026-01-02T03:04:05Z"),
    "date": (datetime.date(2026, 1, 2), "2026-01-02"),
    "timedelta": (datetime.timedelta(seconds=5), "PT5S"),
    "set": ({1}, [1]),
    "bytes": (b"text", "dGV4dA=="),
}


@pytest.mark.parametrize("way", ["result", "patch", "function"])
async def test_it_is_said_who_stores_them_and_where(operator: Operator, kex: Objects, logs: Logs, way: str) -> None:
    @kopf.on.create("kopfexamples", id="idle")
    async def idle(patch: kopf.Patch, **_: Any) -> None:
        patch.status["idle"] = True

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(name: str, patch: kopf.Patch, **_: Any) -> Any:
        value, _stored = VALUES[name]
        content = {"items": [{"field": value}], "proper": [None, True, 1, 1.5, "text", (1, 2), {"a.b": {}}]}
        if way == "patch":
            patch.status["fn"] = content
        elif way == "function":
            patch.fns.append(lambda body: body.setdefault("status", {}).update(fn=content))
        return content if way == "result" else None

    await operator.start()
    await kex.create_all(VALUES)
    for name, (_value, stored) in VALUES.items():
        obj = await kex.wait_handled(name)
        assert obj["status"]["fn"] == {
            "items": [{"field": stored}],
            "proper": [None, True, 1, 1.5, "text", [1, 2], {"a.b": {}}],
        }
        [warning] = logs.get_messages(name, level=30)
        assert warning.startswith(
            f"JSON has no form for some values of Handler 'fn': status.fn.items[0].field ({name}). "
        )
    assert {record.levelname for record in logs.find(WARNING)} == {"WARNING"}


async def test_numbers_that_json_does_not_have_and_many_values(operator: Operator, kex: Objects, logs: Logs) -> None:
    many = "status.fn[0] (set), status.fn[1] (set), status.fn[2] (set), and 997 more. "
    values = {"nan": {"field": float("nan")}, "inf": {"field": float("inf")}, "many": [{1}] * 1000}
    kopf.on.create("kopfexamples", id="fn")(lambda name, **_: values[name])
    await operator.start()
    for name in values:
        await kex.create_and_wait(name)
        [warning] = logs.get_messages(name, level=30)
        assert (many if name == "many" else f"status.fn.field ({name})") in warning


async def test_other_handlers(operator: Operator, kex: Objects, logs: Logs) -> None:
    for id, decorator in {"event": kopf.on.event, "timer": kopf.timer, "daemon": kopf.daemon}.items():

        @decorator("kopfexamples", id=id)
        async def fn(patch: kopf.Patch, id: str = id, **_: Any) -> None:
            patch.status[id] = datetime.date(2026, 1, 2)

    await operator.start_and_create(kex)
    for handler in ("Handler 'event'", "Timer 'timer'", "Daemon 'daemon'"):
        await logs.wait(rf"JSON has no form for some values of {handler}: status\.\w+ \(date\)\. .*")
    await kex.wait(lambda obj: obj.get("status") == dict.fromkeys(("event", "timer", "daemon"), "2026-01-02"))


@pytest.mark.fastforward
@pytest.mark.parametrize("way", ["result", "patch"])
async def test_timers_are_warned_of_once_for_each_object(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    way: str,
) -> None:
    @kopf.timer("kopfexamples", id="tick", interval=10)
    async def tick(patch: kopf.Patch, **_: Any) -> Any:
        calls.append("tick")
        value = {"n": len(calls), "time": {1}}
        if way == "patch":
            patch.status["tick"] = value
        return value if way == "result" else None

    await operator.start_and_create(kex, "one")
    await kex.create("two")
    await calls.wait_length(20)
    assert len(logs.find(WARNING)) == 2


def test_the_memory_of_who_was_warned_is_limited() -> None:
    once = Once(limit=2)
    assert [once.is_new(subject) for subject in ("one", "two", "one", "three", "two", "one")] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    assert len(once) == 2


async def test_what_cannot_be_stored_at_all_is_named(operator: Operator, kex: Objects, logs: Logs) -> None:
    """The error itself says neither who it was nor where."""

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["lock"] = threading.Lock()

    logs.expected.append("lock")
    await operator.start_and_create(kex)
    await logs.wait(r"JSON has no form for some values of Handler 'fn': spec\.lock \(lock\)\. .*")
    await logs.wait(".*could not be handled.*TypeError.*lock.*")


async def test_views_of_objects_are_proper_values(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, spec: kopf.Spec, labels: kopf.Labels, **_: Any) -> Any:
        patch.status["copy"] = {"spec": spec, "labels": [labels]}
        return {"spec": spec}

    obj = await operator.start_and_handle(kex, spec={"field": {"deep": [1]}}, labels={"label": "value"})
    spec = {"field": {"deep": [1]}}
    assert obj["status"] == {"copy": {"spec": spec, "labels": [{"label": "value"}]}, "fn": {"spec": spec}}
    assert not logs.find(WARNING)


@pytest.mark.parametrize("way", ["patch", "function"])
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.daemon])
async def test_values_that_contain_themselves(
    operator: Operator, kex: Objects, logs: Logs, decorator: Decorator, way: str
) -> None:
    """They do not hang the operator: it handles other objects, and the deletion."""
    loops: dict[str, Any] = {"dict": {}, "list": []}
    loops["dict"].update(a=loops["dict"], b=loops["dict"])
    loops["list"] += [loops["list"]] * 2

    @decorator("kopfexamples", id="fn")
    async def fn(name: str, patch: kopf.Patch, **_: Any) -> None:
        if way == "patch":
            patch.spec["loop"] = loops.get(name)
        else:
            patch.fns.append(lambda body: body["spec"].update(loop=loops.get(name)))

    kopf.on.create("kopfexamples", id="other")(do_nothing)
    logs.expected.append("nested too deeply")
    await operator.start()
    await kex.create_all((*loops, "other"))
    for name in loops:
        await logs.wait(".*nested too deeply.*", name=name)
        await kex.delete_and_wait(name)
    await kex.wait_handled("other")
