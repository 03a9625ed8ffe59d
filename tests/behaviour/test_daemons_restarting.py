"""When daemons end by themselves: results, patches, errors, retries; and when they are started again or never."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_annotations, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator, get_duration, get_pauses, now

pytestmark = pytest.mark.fastforward


async def test_daemons_that_exit_are_not_started_again_in_this_operator(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples", id="fn")(calls.noting("called"))
    await operator.start_and_call(kex, calls)
    await kex.merge({"spec": {"field": "new"}})
    await asyncio.sleep(10000)
    assert calls == ["called"]
    await operator.restart()
    await calls.wait_length(2)
    await kex.delete_and_wait()
    assert calls == ["called", "called"]


@pytest.mark.parametrize("delay", [10, 3600.5])
async def test_temporary_errors_restart_the_daemon_after_their_delay(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    delay: float,
) -> None:
    @kopf.daemon("kopfexamples", id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append((retry, now()))
        await asyncio.sleep(5)
        raise kopf.TemporaryError("Need to restart.", delay=delay)

    await operator.start_and_call(kex, calls, times=4)
    assert [retry for retry, _ in calls][:4] == [0, 1, 2, 3]
    assert get_pauses([time for _, time in calls])[:3] == pytest.approx([5 + delay] * 3, abs=1)


@pytest.mark.parametrize("delay", [None, 0])
async def test_no_delay_is_an_instant_restart_which_does_not_block_the_operator(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    delay: float | None,
) -> None:
    @kopf.daemon("kopfexamples", when=lambda name, **_: name == "obj", id="fn")
    async def fn(retry: int, **_: Any) -> None:
        if finished.is_set():
            calls.append(("finished", retry))
        elif retry >= 50000:
            calls.append(("blocked", retry))
        else:
            raise kopf.TemporaryError("Need to restart.", delay=delay)

    @kopf.on.create("kopfexamples", when=lambda name, **_: name == "other")
    async def create_fn(**_: Any) -> None:
        finished.set()

    finished = asyncio.Event()
    await operator.start_and_create(kex, "obj")
    await kex.create("other")
    await calls.wait_length(1)
    assert calls[0][0] == "finished"


async def test_arbitrary_errors_are_retried_after_the_backoff(operator: Operator, kex: Objects, calls: Calls) -> None:
    for id, own in {"default": None, "own": 7}.items():
        kopf.daemon("kopfexamples", id=id, param=id, backoff=own)(
            calls.noting(lambda param, **_: (param, now()), error=Exception("boo"), times=3)
        )

    await operator.start_and_call(kex, calls, times=8)
    for id, backoff in {"default": 60, "own": 7}.items():
        times = [time for param, time in calls if param == id]
        assert get_pauses(times) == pytest.approx([backoff] * 3, abs=1)


async def test_the_mixed_example_of_errors(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    @kopf.daemon("kopfexamples", errors=kopf.ErrorsMode.TEMPORARY, backoff=10, retries=10, id="fn")
    def fn(retry: int, runtime: Any, **_: Any) -> None:
        calls.append((retry, round(runtime.total_seconds())))
        if retry < 3:
            raise kopf.TemporaryError("I'll be back!", delay=100)
        elif retry < 5:
            raise OSError("Something happened!")
        raise kopf.PermanentError("Bye-bye!")

    await operator.start_and_create(kex)
    await logs.wait(".*'fn' failed permanently: Bye-bye!")
    await asyncio.sleep(10000)
    assert [retry for retry, _ in calls] == [0, 1, 2, 3, 4, 5]
    assert [runtime for _, runtime in calls] == pytest.approx([0, 100, 200, 300, 310, 320], abs=2)


LIMITS: dict[str, tuple[dict[str, Any], Exception, int]] = {
    "permanent": ({}, kopf.PermanentError("boo"), 1),
    "time-is-over": ({}, kopf.HandlerTimeoutError("boo"), 1),
    "retries": ({"retries": 3}, Exception("boo"), 3),
    "timeout": ({"timeout": 250, "backoff": 100}, Exception("boo"), 3),
    "mode": ({"errors": kopf.ErrorsMode.PERMANENT}, Exception("boo"), 1),
    "ignored": ({"errors": kopf.ErrorsMode.IGNORED}, Exception("boo"), 1),
}


async def test_permanent_errors_and_limits_end_the_daemon_until_the_operator_restarts(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    for id, (options, error, _count) in LIMITS.items():
        kopf.daemon("kopfexamples", **options, id=id, param=id)(calls.noting(lambda param, **_: param, error=error))
    await operator.start_and_create(kex)
    for id, (_options, _error, count) in LIMITS.items():
        await logs.wait(f".*'{id}' failed .*boo", times=count)
    await kex.merge({"spec": {"field": "new"}})
    await asyncio.sleep(10000)
    assert Counter(calls.items) == {id: count for id, (*_, count) in LIMITS.items()}
    await operator.restart()
    await calls.wait(lambda items: all(items.count(id) > count for id, (*_, count) in LIMITS.items()))
    await kex.delete_and_wait()


async def test_daemons_waiting_for_a_retry_exit_at_once_when_the_object_is_deleted(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    kopf.daemon("kopfexamples", id="fn")(calls.noting("called", error=kopf.TemporaryError("later", delay=100000)))
    await operator.start_and_create(kex)
    await logs.wait(".*'fn' failed temporarily: later")
    assert await get_duration(kex.delete_and_wait()) < 10
    assert calls == ["called"]


async def test_daemons_that_fail_while_being_stopped_are_not_retried(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.daemon("kopfexamples", id="fn")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("called")
        await stopped.wait()
        raise Exception("cannot exit properly")

    await operator.start_and_call(kex, calls)
    assert await get_duration(kex.delete_and_wait()) < 10
    assert calls == ["called"]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("result", ".*'fn'.*JSON.*"),
        ("patch", ".*such values are not accepted.*|.*[Ii]nvalid.*"),
        ("fns", ".*has made a patch that cannot be applied, it is lost.*such values.*"),
    ],
)
async def test_what_can_never_be_stored_is_reported_and_does_not_hold_the_object(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    kind: str,
    complaint: str,
) -> None:
    @kopf.daemon("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> Any:
        calls.append("called")
        wrong = "such values are not accepted!"
        if kind == "fns":
            patch.fns.append(lambda body: body["metadata"].update(labels={"label": wrong}))
        patch.metadata.labels["label"] = wrong if kind == "patch" else None
        return object() if kind == "result" else None

    await operator.start_and_create(kex)
    await logs.wait(complaint)
    await asyncio.sleep(10000)
    if kind == "result":
        assert len([message for message in logs.get_messages("obj", level=40) if "'fn'" in message]) == 1
    assert await get_duration(kex.delete_and_wait()) < 60
    assert calls == ["called"]


async def test_patches_go_to_the_object_after_each_attempt(operator: Operator, kex: Objects) -> None:
    @kopf.daemon("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, retry: int, **_: Any) -> str:
        patch.status[f"attempt{retry}"] = "was here"
        patch.metadata.labels[f"attempt{retry}"] = "yes"
        patch.fns.append(lambda body: body["spec"]["items"].append(retry))
        if retry < 2:
            raise kopf.TemporaryError("again", delay=10)
        return "done"

    await operator.start_and_create(kex, spec={"items": []})
    obj = await kex.wait(lambda obj: "fn" in obj.get("status", {}))
    assert obj["status"] == {"fn": "done", **{f"attempt{n}": "was here" for n in range(3)}}
    assert obj["metadata"]["labels"] == {f"attempt{n}": "yes" for n in range(3)}
    assert obj["spec"]["items"] == [0, 1, 2]


@pytest.mark.parametrize("decorator", [kopf.daemon, kopf.timer])
async def test_results_outlive_conflicts_of_busy_objects(operator: Operator, kex: Objects, decorator: Any) -> None:
    """A server answers so to patches without a version, too, if others always come before it."""

    async def fn(**_: Any) -> str:
        operator.cluster.faults.inject(409, verb="patch", times=3)
        return "done"

    decorator("kopfexamples", id="fn", **({"interval": 10000} if decorator is kopf.timer else {}))(fn)
    await operator.start_and_create(kex)
    await kex.wait(lambda obj: obj.get("status", {}).get("fn") == "done")


async def test_exclusion_forever_by_annotations(operator: Operator, kex: Objects, calls: Calls) -> None:
    """As in the tips & tricks: even the restarted operator does not start the daemon again."""

    @kopf.daemon("kopfexamples", annotations={"never-again": kopf.ABSENT}, id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        calls.append("called")
        patch.metadata.annotations["never-again"] = "yes"

    await operator.start_and_create(kex)
    obj = await kex.wait(lambda obj: "never-again" in get_annotations(obj) and not get_finalizers(obj))
    assert FINALIZER not in get_finalizers(obj)
    await operator.restart()
    await asyncio.sleep(1000)
    assert calls == ["called"]
