"""The staged termination of daemons: asked, cancelled, abandoned, or waited for; and what holds the object."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator, get_duration, now


@pytest.mark.fastforward
async def test_the_object_waits_until_its_daemon_exits(operator: Operator, kex: Objects, calls: Calls) -> None:
    """A daemon that takes its time on request is not cancelled while it is in the backoff."""

    @kopf.daemon("kopfexamples", cancellation_backoff=100, cancellation_timeout=1, id="fn")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        await stopped.wait()
        calls.append("asked to exit")
        await asyncio.sleep(50)
        calls.append("exited")

    await operator.start_and_call(kex, calls)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    started = now()
    await kex.delete()
    await calls.wait_length(2)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    await kex.wait_gone()
    assert now() - started == pytest.approx(50, abs=5)
    assert calls == ["started", "asked to exit", "exited"]


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cancellation_timeout": 10}, 0),
        ({"cancellation_timeout": 10, "cancellation_backoff": 0}, 0),
        ({"cancellation_timeout": 10, "cancellation_backoff": 30}, 30),
        ({"cancellation_timeout": 10, "cancellation_backoff": 3600}, 3600),
        ({"cancellation_timeout": 0, "cancellation_backoff": 30}, 30),
    ],
)
async def test_async_daemons_are_cancelled_after_the_backoff_if_they_may_be(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    options: dict[str, Any],
    expected: float,
) -> None:
    kopf.daemon("kopfexamples", **options, id="fn")(
        calls.hanging("started", lambda stopped, **_: (now(), stopped.reason))
    )
    await operator.start_and_call(kex, calls)
    started = now()
    await kex.delete_and_wait()
    assert calls[1][0] - started == pytest.approx(expected, abs=5)
    assert kopf.DaemonStoppingReason.DAEMON_CANCELLED in calls[1][1]
    assert len(calls) == 2


@pytest.mark.fastforward
async def test_daemons_may_swallow_the_cancellation_and_exit_normally(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.daemon("kopfexamples", cancellation_timeout=100, id="fn")
    async def fn(**_: Any) -> None:
        try:
            calls.append("started")
            await asyncio.sleep(1000000)
        except asyncio.CancelledError:
            await asyncio.sleep(20)
            calls.append("cleaned up")

    await operator.start_and_call(kex, calls)
    assert await get_duration(kex.delete_and_wait()) == pytest.approx(20, abs=5)
    assert calls == ["started", "cleaned up"]


@pytest.mark.fastforward
async def test_the_timeout_is_measured_from_the_cancellation_and_then_the_daemon_is_abandoned(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.daemon("kopfexamples", cancellation_backoff=100, cancellation_timeout=50, id="fn")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        while not allowed.is_set():
            try:
                await allowed.wait()
            except asyncio.CancelledError:
                calls.append("refused to exit")
        calls.append(stopped.reason)

    allowed = asyncio.Event()
    await operator.start_and_call(kex, calls)
    started = now()
    with pytest.warns(ResourceWarning, match="'fn' did not exit in time. Leaving it orphaned"):
        await kex.delete_and_wait()
    assert now() - started == pytest.approx(150, abs=5)
    assert calls == ["started", "refused to exit"]
    allowed.set()
    await calls.wait_length(3)
    assert kopf.DaemonStoppingReason.DAEMON_ABANDONED in calls[2]


@pytest.mark.fastforward
@pytest.mark.filterwarnings("error")
async def test_daemons_are_abandoned_even_if_warnings_are_errors(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.daemon("kopfexamples", cancellation_timeout=50, id="fn")
    async def fn(**_: Any) -> None:
        while not allowed.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await allowed.wait()

    allowed = asyncio.Event()
    logs.expected.append("Task exception was never retrieved")
    await operator.start_and_create(kex)
    await logs.wait("Daemon 'fn' is invoked.")
    await kex.delete_and_wait()
    allowed.set()


async def test_sync_daemons_cannot_be_cancelled_but_can_be_abandoned(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.daemon("kopfexamples", cancellation_backoff=0.02, cancellation_timeout=0.02, id="fn")
    def fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        allowed.wait()
        calls.append(stopped.reason)

    allowed = threading.Event()
    try:
        await operator.start_and_call(kex, calls)
        with pytest.warns(ResourceWarning, match="Leaving it orphaned"):
            await kex.delete_and_wait()
        assert calls == ["started"]
    finally:
        allowed.set()
    await calls.wait_length(2)
    assert kopf.DaemonStoppingReason.DAEMON_ABANDONED in calls[1]
    assert kopf.DaemonStoppingReason.DAEMON_CANCELLED in calls[1]  # so it knows that the time is over
    assert kopf.DaemonStoppingReason.DONE not in calls[1]


@pytest.mark.fastforward
@pytest.mark.parametrize("source", ["option", "settings", "default"])
async def test_without_the_timeout_it_is_polled_forever_and_the_object_is_blocked(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    source: str,
) -> None:
    options: dict[str, Any] = {"cancellation_polling": 30} if source == "option" else {}
    if source == "settings":
        operator.set("background.cancellation_polling", 30)

    @kopf.daemon("kopfexamples", **options, id="fn")
    async def fn(**_: Any) -> None:
        calls.append("started")
        try:
            await allowed.wait()
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise

    allowed = asyncio.Event()
    await operator.start_and_call(kex, calls)
    await kex.delete()
    await kex.wait(lambda obj: "deletionTimestamp" in obj["metadata"])
    started = now()
    reminder = ".*'fn' is asked to exit, but it still runs.*"
    await logs.wait(reminder, times=10)
    assert now() - started == pytest.approx(600 if source == "default" else 300, abs=31)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    allowed.set()
    await kex.wait_gone()
    assert len(logs.find(reminder)) == 10
    assert calls == ["started"]


@pytest.mark.fastforward
async def test_the_object_waits_for_the_slowest_daemon(operator: Operator, kex: Objects, calls: Calls) -> None:
    for seconds in (0, 10, 100):
        kopf.daemon("kopfexamples", id=f"daemon{seconds}")(calls.accompanying("started", seconds, lasting=seconds))
    await operator.start_and_call(kex, calls, times=3)
    assert await get_duration(kex.delete_and_wait()) == pytest.approx(100, abs=5)
    assert calls.items[3:] == [0, 10, 100]


async def test_objects_deleted_by_force_take_their_daemons_with_them(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Somebody removes the finalizers while the daemon is being waited for."""

    @kopf.daemon("kopfexamples", id="fn")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        await allowed.wait()
        calls.append(stopped.reason)

    allowed = asyncio.Event()
    await operator.start_and_call(kex, calls)
    await kex.delete()
    await kex.release_and_wait()
    allowed.set()
    await calls.wait_length(2)
    assert kopf.DaemonStoppingReason.RESOURCE_DELETED in calls[1]
    await kex.create("other")
    await calls.wait_length(4)
    assert calls.items[2] == "started"


@pytest.mark.fastforward
async def test_daemons_of_objects_gone_unnoticed_exit_and_are_not_spawned_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The object is deleted and released while the stream is broken: the operator never sees it being deleted."""
    kopf.daemon("kopfexamples", id="fn")(
        calls.accompanying(lambda name, **_: name, lambda name, stopped, **_: (name, stopped.reason))
    )
    await operator.start_and_call(kex, calls)
    await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
    rule = operator.cluster.faults.inject(503, verb="watch", resource="kopfexamples", rate=1.0)
    operator.cluster.faults.cut_watches()
    await kex.merge({"metadata": {"finalizers": None}})
    await kex.delete()
    operator.cluster.faults.compact()
    operator.cluster.faults.remove(rule)
    await calls.wait_length(2)
    await kex.create("other")
    await calls.wait(lambda items: "other" in items)
    await operator.stop()
    assert [item for item in calls if item == "obj"] == ["obj"]
    assert kopf.DaemonStoppingReason.RESOURCE_DELETED in calls[1][1]


async def test_daemons_exit_when_the_object_is_deleted_even_if_our_finalizer_was_taken_away(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Another finalizer holds the object, so it is marked for deletion for long."""
    kopf.daemon("kopfexamples", id="fn")(calls.accompanying("started", lambda stopped, **_: stopped.reason))
    await operator.start_and_call(kex, calls, finalizers=["example.com/theirs"])
    await kex.wait(lambda obj: FINALIZER in get_finalizers(obj))
    operator.cluster.faults.silence_watches()
    await kex.merge({"metadata": {"finalizers": ["example.com/theirs"]}})
    await kex.delete()
    operator.cluster.faults.silence_watches(False)
    await calls.wait_length(2)
    assert kopf.DaemonStoppingReason.RESOURCE_DELETED in calls[1]
    await kex.release_and_wait()
