"""Timers that fail: whose delay is it then; what they leave on the object; when they stop forever."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def fail_temporarily(number: int, _: int) -> None:
    if number <= 2:
        raise kopf.TemporaryError("again", delay=33 if number == 1 else 1)


def fail(times: float = math.inf) -> Callable[[int, int], None]:
    """Make a function that fails in so many attempts of each cycle."""

    def fail(_: int, retry: int) -> None:
        if retry < times:
            raise Exception("boo")

    return fail


SCHEDULES: dict[str, tuple[dict[str, Any], Callable[[int, int], None], list[int], list[float]]] = {
    # Three failures with the backoff of 5 seconds, a success, and the interval of 10: 25 seconds for one cycle.
    "documented": (
        {"errors": kopf.ErrorsMode.TEMPORARY, "backoff": 5},
        fail(times=3),
        [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
        [5, 5, 5, 10, 5, 5, 5, 10, 5],
    ),
    "default": ({}, fail(), [0, 1, 2, 3], [60, 60, 60]),
    "temporary": ({}, fail_temporarily, [0, 1, 2, 0, 0], [33, 1, 10, 10]),
    "temporary-sharp": ({"sharp": True}, fail_temporarily, [0, 1, 2, 0, 0], [33, 1, 10, 10]),
    "ignored": ({"errors": kopf.ErrorsMode.IGNORED}, fail(), [0] * 5, [10] * 4),
    # The limits are for one cycle: occasional errors do not accumulate.
    "limited": (
        {"backoff": 1, "retries": 3, "timeout": 100},
        fail(times=2),
        [0, 1, 2] * 15,
        [*([1, 1, 10] * 14), 1, 1],
    ),
}
"""The options, with the interval of 10 seconds; how the attempts end; their numbers; the pauses between them."""


async def test_the_schedules(operator: Operator, kex: Objects, calls: Calls) -> None:
    for id, (options, end, _retries, _pauses) in SCHEDULES.items():

        @kopf.timer("kopfexamples", interval=10, **options, id=id, param=id)
        async def fn(retry: int, runtime: Any, param: str, end: Any = end, **_: Any) -> None:
            calls.append((param, retry, round(runtime.total_seconds()), now()))
            end([whose for whose, *_ in calls].count(param), retry)

    await operator.start_and_create(kex)
    await asyncio.sleep(190)
    for id, (*_, retries, pauses) in SCHEDULES.items():
        seen = [(retry, runtime) for whose, retry, runtime, _ in calls if whose == id][: len(retries)]
        since = 0.0
        expected: list[object] = [(0, 0)]
        for retry, pause in zip(retries[1:], pauses, strict=True):
            since = since + pause if retry else 0.0
            expected.append((retry, pytest.approx(since, abs=1)))
        assert seen == expected, id
        times = [time for whose, *_, time in calls if whose == id]
        assert get_pauses(times)[: len(pauses)] == pytest.approx(pauses, abs=0.5), id


LIMITS: dict[str, tuple[dict[str, Any], Exception, int]] = {
    "permanent": ({}, kopf.PermanentError("bye"), 1),
    "mode": ({"errors": kopf.ErrorsMode.PERMANENT}, Exception("bye"), 1),
    "retries": ({"retries": 3}, Exception("bye"), 3),
    "temporary-retries": ({"retries": 3}, kopf.TemporaryError("bye", delay=1), 3),
    "timeout": ({"timeout": 150}, Exception("bye"), 3),
}


async def test_permanent_errors_stop_the_timer_until_the_operator_restarts(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    for id, (options, _error, _count) in LIMITS.items():

        @kopf.timer("kopfexamples", interval=10, **options, id=id, param=id)
        async def fn(name: str, param: str, **_: Any) -> None:
            calls.append((name, param))
            if name == "bad":
                raise LIMITS[param][1]

    def are_tried(times: int) -> Callable[[list[Any]], bool]:
        return lambda items: all(items.count(("bad", id)) == times * LIMITS[id][2] for id in LIMITS)

    await operator.start_and_create(kex, "bad")
    await kex.create("good")
    await calls.wait(are_tried(1))
    await kex.merge({"spec": {"field": "new"}}, "bad")
    await asyncio.sleep(700)
    assert are_tried(1)(calls.items)
    assert all(calls.items.count(("good", id)) > 50 for id in LIMITS)
    await operator.restart()
    await calls.wait(are_tried(2))
    await kex.delete_and_wait("bad")


async def test_results_go_to_the_status(operator: Operator, kex: Objects, sub: Objects) -> None:
    values = {"dict": {"a": [1]}, "text": "text", "zero": 0, "false": False}
    for id, value in values.items():

        async def fn(param: Any, **_: Any) -> Any:
            await asyncio.sleep(100)
            return param

        kopf.timer("kopf.dev", kopf.EVERYTHING, id=f"timer-{id}", param=value, interval=10)(fn)
        kopf.daemon("kopf.dev", kopf.EVERYTHING, id=f"daemon-{id}", param=value)(fn)
    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    expected = {f"{kind}-{id}": value for kind in ("timer", "daemon") for id, value in values.items()}
    for objects in (kex, sub):
        await objects.create()
        obj = await objects.wait(lambda obj: len(obj.get("status", {})) == len(expected))
        assert obj["status"] == expected
        assert obj["status"]["timer-false"] is False
        await objects.delete_and_wait()


async def test_the_same_results_make_no_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", interval=10, id="fn")(calls.noting("called", result="the same"))
    await operator.start_and_create(kex)
    await calls.wait_length(20)
    statuses = [obj.get("status") for obj in kex.get_history()]
    assert statuses.count({"fn": "the same"}) == 1


async def test_patches_are_applied_once_for_each_call(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Neither dicts nor functions accumulate from call to call."""

    @kopf.timer("kopfexamples", interval=10, id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        assert not patch
        assert not patch.fns
        n = len(calls)
        calls.append(n)
        patch.fns.append(lambda body: body["spec"]["items"].append(n))
        patch.spec["last"] = n

    await operator.start_and_create(kex, spec={"items": []})
    obj = await kex.wait(lambda obj: obj["spec"].get("last", 0) >= 10)
    assert obj["spec"] == {"items": [*range(11)], "last": 10}


async def test_conflicting_patches_are_applied_to_the_fresh_state(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Neither our change nor the other one is lost, and the timer is not called again for that."""

    @kopf.timer("kopfexamples", interval=1000, id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        calls.append("called")
        patch.fns.append(lambda body: body["spec"]["items"].append("ours"))
        operator.cluster.faults.silence_watches()
        await kex.merge({"spec": {"items": ["theirs"]}})
        asyncio.get_running_loop().call_later(10, operator.cluster.faults.silence_watches, False)

    await operator.start_and_create(kex, spec={"items": []})
    await kex.wait(lambda obj: obj["spec"]["items"] == ["theirs", "ours"])
    assert calls == ["called"]


@pytest.mark.parametrize("kind", ["result", "patch"])
async def test_what_can_never_be_stored_is_reported_and_the_timer_goes_on(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    kind: str,
) -> None:
    @kopf.timer("kopfexamples", interval=10, id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> Any:
        calls.append("called")
        if kind == "result":
            return object()
        patch.metadata.labels["label"] = "such values are not accepted!"
        return None

    await operator.start_and_create(kex)
    await calls.wait_length(5)
    assert any("'fn'" in message for message in logs.get_messages("obj", level=40))
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 60


async def test_failures_of_the_api_are_got_over(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", interval=10, id="fn")
    async def fn(**_: Any) -> int:
        calls.append("called")
        return len(calls)

    await operator.start_and_create(kex)
    await kex.wait(lambda obj: obj.get("status") == {"fn": 1})
    operator.cluster.faults.inject(500, verb="patch", times=30)
    await kex.wait(lambda obj: obj["status"] == {"fn": 2})
    await kex.wait(lambda obj: obj["status"] == {"fn": 3})
    assert len(calls) >= 3
