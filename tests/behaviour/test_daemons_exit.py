"""The exit of the operator with daemons and timers: everyone is told, nobody holds it for longer than documented."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import kopf
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Decorator, Logs, Operator, do_nothing, get_duration

pytestmark = pytest.mark.lagging


@pytest.mark.fastforward
async def test_daemons_exit_with_the_operator_and_the_objects_remain_blocked(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """They will be started again by the next operator, so the finalizers stay."""
    kopf.daemon("kopfexamples", id="fn")(
        calls.accompanying(lambda name, **_: name, lambda stopped, **_: stopped.reason)
    )
    await operator.start()
    await kex.create_all(f"obj{i}" for i in range(20))
    await calls.wait_length(20)
    assert await get_duration(operator.stop()) < 1
    assert len(calls) == 40
    assert all(kopf.DaemonStoppingReason.OPERATOR_EXITING in reason for reason in calls.items[20:])
    assert get_finalizers(await kex.get("obj0")) == [FINALIZER]


@pytest.mark.fastforward
@pytest.mark.parametrize("seconds", [0, 1, 3])
async def test_daemons_that_need_some_time_have_it(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    seconds: float,
) -> None:
    """And what they return is stored, as the connection is closed afterwards."""
    kopf.daemon("kopfexamples", id="fn")(calls.accompanying("started", lasting=seconds, result="exited"))

    @kopf.on.cleanup()
    async def cleanup_fn(**_: Any) -> None:
        calls.append((await kex.get())["status"])

    await operator.start_and_call(kex, calls)
    assert await get_duration(operator.stop()) == pytest.approx(seconds, abs=1)
    assert calls == ["started", {"fn": "exited"}]


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("kind", "all_options", "expected"),
    [
        pytest.param(kopf.daemon, [{"cancellation_backoff": 1, "cancellation_timeout": 1}], 1, id="by their stages"),
        pytest.param(
            kopf.daemon,
            [
                {},
                {"cancellation_backoff": 1000},
                {"cancellation_backoff": 1000, "cancellation_timeout": 1000},
            ],
            5,
            id="in five seconds whatever their stages",
        ),
        pytest.param(kopf.timer, [{"interval": 1}], 5, id="timers"),
    ],
)
async def test_those_who_hang_are_cancelled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kind: Decorator,
    all_options: list[Any],
    expected: float,
) -> None:
    for number, options in enumerate(all_options):
        kind("kopfexamples", id=f"fn{number}", **options)(calls.hanging("started"))
    count = len(all_options)
    await operator.start_and_call(kex, calls, times=count)
    assert await get_duration(operator.stop()) == pytest.approx(expected, abs=0.5 if expected == 1 else 1)
    assert calls == ["started"] * count + ["cancelled"] * count


@pytest.mark.fastforward
async def test_many_stubborn_daemons_do_not_hold_the_exit_for_longer(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Those that refuse to be cancelled: the time does not depend on how many they are."""

    @kopf.daemon("kopfexamples", id="fn")
    async def fn(**_: Any) -> None:
        calls.append("started")
        while not allowed.is_set():
            try:
                await allowed.wait()
            except asyncio.CancelledError:
                calls.append("refused")

    allowed = asyncio.Event()
    await operator.start()
    await kex.create_all(f"obj{i}" for i in range(50))
    await calls.wait_length(50)
    assert await get_duration(operator.stop()) == pytest.approx(5, abs=1.5)
    assert calls.items.count("refused") == 50
    allowed.set()


@pytest.mark.fastforward
async def test_orphaned_daemons_are_cancelled_too(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Nothing of an embedded operator goes on after it, even if its object has not waited for the daemon."""

    @kopf.daemon("kopfexamples", cancellation_timeout=1, id="fn")
    async def fn(**_: Any) -> None:
        calls.append("started")
        try:
            await asyncio.sleep(1000000)
        except asyncio.CancelledError:
            calls.append("refused")
        try:
            await asyncio.sleep(1000000)
        except asyncio.CancelledError:
            calls.append("cancelled again")
            raise

    await operator.start_and_call(kex, calls)
    with pytest.warns(ResourceWarning):
        await kex.delete_and_wait()
    await operator.stop()
    assert calls == ["started", "refused", "cancelled again"]


@pytest.mark.fastforward
@pytest.mark.lagging(False)
async def test_hung_sync_daemons_do_not_hold_the_exit_of_embedded_operators(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """A thread cannot be stopped, so it is left alone."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.on_stuck = lambda _: None  # the clock goes on beside it

    @kopf.daemon("kopfexamples", id="fn")
    def fn(**_: Any) -> None:
        calls.append("started")
        allowed.wait()

    allowed = threading.Event()
    try:
        await operator.start_and_call(kex, calls)
        assert await get_duration(operator.stop()) == pytest.approx(5, abs=2)
    finally:
        allowed.set()


@pytest.mark.fastforward
@pytest.mark.parametrize("options", [{"initial_delay": 10000}, {"when": lambda name, **_: True}])
async def test_what_only_waits_exits_at_once(operator: Operator, kex: Objects, options: dict[str, Any]) -> None:
    @kopf.daemon("kopfexamples", **options)
    async def daemon_fn(**_: Any) -> None:
        raise kopf.TemporaryError("later", delay=10000)

    kopf.timer("kopfexamples", interval=10000, **options)(do_nothing)
    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start_and_handle(kex)
    await asyncio.sleep(100)
    assert await get_duration(operator.stop()) < 1


@pytest.mark.fastforward
async def test_whatever_is_cancelled_at_the_exit_is_logged_so(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    async def fn(**_: Any) -> None:
        calls.append("started")
        await asyncio.sleep(1000000)

    kopf.on.create("kopfexamples", id="create_fn")(fn)
    kopf.timer("kopfexamples", id="timer_fn", interval=1)(fn)
    kopf.daemon("kopfexamples", id="daemon_fn")(fn)
    kopf.daemon("kopfexamples", id="staged_fn", cancellation_timeout=1)(fn)
    await operator.start_and_call(kex, calls, times=4)
    await operator.stop()
    assert sorted(record.getMessage() for record in logs.find(".* is cancelled.*")) == [
        "Daemon 'daemon_fn' is cancelled. Will escalate.",
        "Daemon 'staged_fn' is cancelled. Will escalate.",
        "Handler 'create_fn' is cancelled. Will escalate.",
        "Timer 'timer_fn' is cancelled. Will escalate.",
    ]
    assert logs.find("Daemon 'staged_fn' is signalled to exit by force.")
