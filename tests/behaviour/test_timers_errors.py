"""Timers that fail: whose delay is it then; what they leave on the object; when they stop forever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def test_the_documented_schedule(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Three failures with the backoff of 5 seconds, a success, and the interval of 10: 25 seconds for one cycle."""

    @kopf.timer("kopfexamples", errors=kopf.ErrorsMode.TEMPORARY, interval=10, backoff=5, id="fn")
    async def fn(retry: int, runtime: Any, **_: Any) -> None:
        calls.append((retry, round(runtime.total_seconds()), now()))
        if retry < 3:
            raise Exception("boo")

    await operator.start_and_create(kex)
    await calls.wait_length(10)
    assert [retry for retry, _, _ in calls][:10] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [runtime for _, runtime, _ in calls][:10] == [0, 5, 10, 15, 0, 5, 10, 15, 0, 5]
    times = [time for _, _, time in calls]
    assert get_pauses(times)[:9] == pytest.approx([5, 5, 5, 10, 5, 5, 5, 10, 5], abs=0.5)
    assert times[8] - times[4] == pytest.approx(25, abs=0.5)


async def test_arbitrary_errors_are_retried_after_a_minute_by_default(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.timer("kopfexamples", interval=10, id="fn")(calls.noting(lambda **_: now(), error=Exception("boo")))
    await operator.start_and_create(kex)
    await calls.wait_length(4)
    assert get_pauses(calls.items)[:3] == pytest.approx([60] * 3, abs=0.5)


@pytest.mark.parametrize("sharp", [True, False])
async def test_delays_of_temporary_errors_override_the_schedule(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    sharp: bool,
) -> None:
    @kopf.timer("kopfexamples", interval=10, sharp=sharp, id="fn")
    async def fn(**_: Any) -> None:
        calls.append(now())
        if len(calls) <= 2:
            raise kopf.TemporaryError("again", delay=33 if len(calls) == 1 else 1)

    await operator.start_and_create(kex)
    await calls.wait_length(5)
    assert get_pauses(calls.items)[:4] == pytest.approx([33, 1, 10, 10], abs=0.5)


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
    await asyncio.sleep(2000)
    assert are_tried(1)(calls.items)
    assert all(calls.items.count(("good", id)) > 100 for id in LIMITS)
    await operator.restart()
    await calls.wait(are_tried(2))
    await kex.delete_and_wait("bad")


async def test_ignored_errors_are_as_good_as_successes(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", interval=10, errors=kopf.ErrorsMode.IGNORED, id="fn")(
        calls.noting(lambda retry, **_: (retry, now()), error=Exception("boo"))
    )
    await operator.start_and_create(kex)
    await calls.wait_length(5)
    assert {retry for retry, _ in calls} == {0}
    assert get_pauses([time for _, time in calls])[:4] == pytest.approx([10] * 4, abs=0.5)


async def test_a_success_begins_a_new_cycle_of_retries(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The limits are for one cycle: occasional errors do not accumulate."""
    kopf.timer("kopfexamples", interval=10, backoff=1, retries=3, timeout=100, id="fn")(
        calls.noting(lambda retry, **_: retry, error=Exception("boo"), times=2)
    )
    await operator.start_and_create(kex)
    await calls.wait_length(100)
    assert calls.items[:99] == [0, 1, 2] * 33


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
