"""Errors in the indexing functions: kept, excluded for a while, or excluded forever."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.fastforward
MODES = kopf.ErrorsMode


class Scene:
    """An index whose function does as the object says: returns the value, or raises the error."""

    index: kopf.Index[Any, Any]

    def __init__(self, kex: Objects, registry: kopf.OperatorRegistry, calls: Calls) -> None:
        self.kex = kex
        self.registry = registry
        self.calls = calls
        self.events = 0
        self.error: Exception = Exception("boo")

    def declare(self, **options: Any) -> None:
        @kopf.index("kopfexamples", registry=self.registry, **options)
        def idx(spec: kopf.Spec, retry: int, runtime: Any, **_: Any) -> Any:
            self.calls.append((spec["v"], retry, round(runtime.total_seconds())))
            if spec["v"] == "error":
                raise self.error
            return {"key": spec["v"]}

        @kopf.on.event("kopfexamples", registry=self.registry)
        async def event_fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
            self.index = idx
            self.events += 1

    async def put(self, value: str) -> list[Any]:
        """Bring the object to the state, and get what is in the index afterwards."""
        events = self.events
        if events == 0:
            await self.kex.create(spec={"v": value})
        else:
            await self.kex.merge({"spec": {"v": value}, "status": {"n": events}})
        async with asyncio.timeout(3600):
            while self.events == events:
                await asyncio.sleep(0.001)
        assert list(self.index) in ([], ["key"])
        return list(self.index.get("key", []))


@pytest.fixture
async def scene(kex: Objects, registry: kopf.OperatorRegistry, calls: Calls) -> Scene:
    return Scene(kex, registry, calls)


@pytest.mark.parametrize("options", [{}, {"errors": MODES.IGNORED}])
async def test_ignored_errors_keep_the_stale_values(
    operator: Operator,
    scene: Scene,
    logs: Logs,
    options: dict[str, Any],
) -> None:
    """It is the default, unlike in other handlers; the function is called for each event, and is never retried."""
    scene.declare(**options)
    await operator.start()
    assert await scene.put("error") == []
    assert await scene.put("first") == ["first"]
    assert await scene.put("error") == ["first"]
    await asyncio.sleep(10000)
    assert await scene.put("second") == ["second"]
    assert [value for value, _, _ in scene.calls] == ["error", "first", "error", "second"]
    assert [retry for _, retry, _ in scene.calls] == [0, 0, 0, 0]
    record = logs.find(".*'idx' failed with an exception.*boo")[0]
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"errors": MODES.PERMANENT}, Exception("boo")),
        ({}, kopf.PermanentError("boo")),
        ({"errors": MODES.IGNORED}, kopf.PermanentError("boo")),
        ({"errors": MODES.TEMPORARY}, kopf.PermanentError("boo")),
    ],
)
async def test_permanent_errors_remove_the_values_and_exclude_the_object_forever(
    operator: Operator,
    scene: Scene,
    options: dict[str, Any],
    error: Exception,
) -> None:
    scene.error = error
    scene.declare(**options)
    await operator.start()
    assert await scene.put("first") == ["first"]
    assert await scene.put("error") == []
    await asyncio.sleep(5000)
    assert await scene.put("second") == []
    assert [value for value, _, _ in scene.calls] == ["first", "error"]
    await scene.kex.create("other", spec={"v": "other"})
    await scene.calls.wait_length(3)


@pytest.mark.parametrize(
    ("options", "error", "delay"),
    [
        ({"errors": MODES.TEMPORARY}, Exception("boo"), 60),
        ({"errors": MODES.TEMPORARY, "backoff": 1000}, Exception("boo"), 1000),
        ({"errors": MODES.TEMPORARY, "backoff": 0}, Exception("boo"), 0),
        ({}, kopf.TemporaryError("boo", delay=30), 30),
        ({}, kopf.TemporaryError("boo"), 60),
        ({"backoff": 1000}, kopf.TemporaryError("boo", delay=30), 30),
        ({"errors": MODES.PERMANENT}, kopf.TemporaryError("boo", delay=30), 30),
        ({}, kopf.TemporaryError("boo", delay=0), 0),
        ({}, kopf.TemporaryError("boo", delay=None), 0),
    ],
)
async def test_temporary_errors_remove_the_values_and_exclude_the_object_for_the_delay(
    operator: Operator,
    scene: Scene,
    options: dict[str, Any],
    error: Exception,
    delay: float,
) -> None:
    scene.error = error
    scene.declare(**options)
    await operator.start()
    assert await scene.put("first") == ["first"]
    assert await scene.put("error") == []
    if delay:
        await asyncio.sleep(delay - 5)
        assert await scene.put("too early") == []
        await asyncio.sleep(10)
    assert await scene.put("second") == ["second"]
    assert [value for value, _, _ in scene.calls] == ["first", "error", "second"]


@pytest.mark.parametrize("options", [{"retries": 3}, {"timeout": 150}])
async def test_limits_of_temporary_errors_exclude_the_object_forever(
    operator: Operator,
    scene: Scene,
    options: dict[str, Any],
) -> None:
    scene.declare(errors=MODES.TEMPORARY, backoff=60, **options)
    await operator.start()
    for _ in range(5):
        assert await scene.put("error") == []
        await asyncio.sleep(65)
    assert await scene.put("good") == []
    assert [(value, retry) for value, retry, _ in scene.calls] == [("error", 0), ("error", 1), ("error", 2)]
    assert [runtime for _, _, runtime in scene.calls] == pytest.approx([0, 65, 130], abs=2)


async def test_a_success_resets_the_counters(operator: Operator, scene: Scene) -> None:
    scene.declare(errors=MODES.TEMPORARY, backoff=10, retries=3)
    await operator.start()
    for value in ["error", "error", "good", "error", "error", "good"]:
        assert await scene.put(value) == (["good"] if value == "good" else [])
        await asyncio.sleep(15)
    assert [retry for _, retry, _ in scene.calls] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [(kopf.TemporaryError("boo"), False), (kopf.PermanentError("boo"), False), (ValueError("boo"), True)],
)
async def test_only_unexpected_errors_dump_their_stack_traces(
    operator: Operator,
    scene: Scene,
    logs: Logs,
    error: Exception,
    has_traceback: bool,
) -> None:
    scene.error = error
    scene.declare()
    await operator.start()
    await scene.put("error")
    records = [record for record in logs.records if record.levelno >= logging.ERROR]
    assert len(records) == 1
    assert "boo" in records[0].getMessage()
    assert bool(records[0].exc_info) == has_traceback


async def test_successful_indexing_is_silent(operator: Operator, scene: Scene, logs: Logs) -> None:
    scene.declare()
    await operator.start()
    await scene.put("good")
    assert not any("'idx'" in message for message in logs.get_messages())


async def test_failing_filters_do_not_hold_anything(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    """An error in a callback is an error of that index, not of the operator."""

    def check(name: str, **_: Any) -> bool:
        if name == "bad":
            raise ValueError("something is wrong in the filter")
        return True

    @kopf.index("kopfexamples", when=check)
    def idx(name: str, **_: Any) -> str:
        return name

    kopf.on.create("kopfexamples")(calls.noting(lambda name, idx, **_: (name, [*idx.get(None, [])])))
    await operator.start_and_create(kex, "bad")
    await kex.create("good")
    await kex.wait_handled("bad")
    await kex.wait_handled("good")
    assert ("good", ["good"]) in calls
    assert len(logs.find(".*something is wrong in the filter.*")) <= 10


async def test_indexing_errors_do_not_prevent_the_handling(operator: Operator, kex: Objects, calls: Calls) -> None:
    for error in (Exception("boo"), kopf.PermanentError("boo"), kopf.TemporaryError("boo", delay=1000)):

        @kopf.index("kopfexamples", id=f"index_{len(calls)}", param=error)
        async def idx(param: Exception, **_: Any) -> None:
            raise param

        calls.append(error)

    kopf.on.create("kopfexamples")(calls.noting("created"))
    await kex.create("before")
    await operator.start_and_create(kex, "after")
    await kex.wait_handled("before")
    await kex.wait_handled("after")
    assert calls.items[3:] == ["created", "created"]
