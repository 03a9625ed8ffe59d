"""Timers: when they run, on the time that passes quickly: hours of it in milliseconds."""

from __future__ import annotations

import asyncio
import datetime
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._controller.background.timers import TimerRun
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Journal, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def test_the_interval_is_between_the_calls_or_between_their_beginnings(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """By default, the time of the function itself is not taken into account."""
    for id, sharp in {"regular": None, "sharp": True}.items():

        @kopf.timer("kopfexamples", interval=10, id=id, param=id, sharp=sharp)
        async def fn(param: str, **_: Any) -> None:
            calls.append((param, now()))
            await asyncio.sleep(3)

    await operator.start()
    created = now()
    await kex.create()
    await calls.wait_length(14)
    for id, pause in {"regular": 13, "sharp": 10}.items():
        times = [time for whose, time in calls if whose == id]
        assert times[0] - created < 1
        assert get_pauses(times)[:5] == pytest.approx([pause] * 5, abs=0.5)


@pytest.mark.lagging(False)
async def test_sharp_timers_do_not_drift(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The latencies of single runs do not accumulate over hundreds of them."""

    @kopf.timer("kopfexamples", interval=10, sharp=True, id="fn")
    async def fn(**_: Any) -> None:
        calls.append(now())
        loop.call_later(9.995, loop.jump, 0.02)  # type: ignore[attr-defined]  # busy when it is time for the next run

    loop = asyncio.get_running_loop()
    await operator.start_and_create(kex)
    await calls.wait_length(201)
    assert calls[200] - calls[0] == pytest.approx(2000, abs=0.5)


@pytest.mark.lagging(False)
async def test_sharp_timers_are_called_once_at_a_time(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Event loops can be early: the timers of uvloop are at whole milliseconds, the next or the previous one."""

    def call_early(when: float, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.TimerHandle:
        is_timer = isinstance(getattr(callback, "__self__", None), TimerRun)
        return call_at(when - 0.0004 if is_timer else when, callback, *args, **options)

    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", call_early)
    kopf.timer("kopfexamples", interval=10, sharp=True, id="fn")(calls.noting(lambda **_: now()))
    await operator.start_and_create(kex)
    await calls.wait_length(201)
    assert calls[200] - calls[0] == pytest.approx(2000, abs=0.5)


@pytest.mark.lagging(False)
async def test_sharp_timers_that_are_late_skip_what_is_missed_and_never_overlap(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.timer("kopfexamples", interval=10, sharp=True, id="fn")
    async def fn(**_: Any) -> None:
        calls.append(("started", now()))
        await asyncio.sleep(23)
        calls.append(("ended", now()))

    await operator.start_and_create(kex)
    await calls.wait_length(8)
    assert [what for what, _ in calls][:8] == ["started", "ended"] * 4
    starts = [time for what, time in calls if what == "started"]
    assert get_pauses(starts)[:3] == pytest.approx([30] * 3, abs=0.5)


@pytest.mark.lagging(False)
async def test_sync_timers(operator: Operator, kex: Objects, calls: Calls) -> None:
    loop = asyncio.get_running_loop()
    kopf.timer("kopfexamples", interval=3600, id="fn")(
        lambda **_: calls.append((loop.time(), threading.current_thread() is threading.main_thread()))
    )
    await operator.start_and_create(kex)
    await calls.wait_length(4)
    assert get_pauses([time for time, _ in calls])[:3] == pytest.approx([3600] * 3, abs=0.5)
    assert not any(is_main for _, is_main in calls)


@pytest.mark.lagging(False)
async def test_several_timers_of_one_object_are_independent(operator: Operator, kex: Objects, calls: Calls) -> None:
    """They can overlap with each other and with the handlers of changes."""
    for interval in (7, 10):
        kopf.timer("kopfexamples", id=f"every{interval}", param=interval, interval=interval)(
            calls.noting(lambda param, **_: (param, now()))
        )

    @kopf.timer("kopfexamples", interval=1)
    async def hung_fn(**_: Any) -> None:
        await allowed.wait()

    kopf.on.update("kopfexamples")(calls.noting(lambda **_: ("updated", now())))
    allowed = asyncio.Event()
    await operator.start_and_create(kex)
    await calls.wait_length(20)
    await kex.change_and_wait(field="new")
    for interval in (7, 10):
        pauses = get_pauses([time for key, time in calls if key == interval])
        assert pauses == pytest.approx([interval] * len(pauses), abs=0.5)
    assert "updated" in [key for key, _ in calls]
    allowed.set()


async def test_the_initial_delay_postpones_only_the_first_call(operator: Operator, kex: Objects, calls: Calls) -> None:
    delays: list[Any] = [5, lambda **_: 5, lambda spec, **_: spec["delay"]]
    for number, delay in enumerate(delays):
        kopf.timer("kopfexamples", interval=100, initial_delay=delay, id=f"fn{number}", param=number)(
            calls.noting(lambda param, **_: (param, now()))
        )
    await operator.start()
    created = now()
    await kex.create(spec={"delay": 5})
    await calls.wait_length(6)
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(9)
    for number, _ in enumerate(delays):
        times = [time for whose, time in calls if whose == number]
        assert get_pauses([created, *times])[:3] == pytest.approx([5, 100, 100], abs=1)
    restarted = now()
    await operator.restart()
    await calls.wait_length(12)
    assert [time - restarted for _, time in calls.items[9:]] == pytest.approx([5, 5, 5], abs=1)


async def test_without_an_interval_it_is_called_once(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", initial_delay=10, id="fn")(calls.noting("called"))
    await operator.start_and_create(kex)
    await asyncio.sleep(100)
    await kex.merge({"spec": {"field": "new"}})
    await asyncio.sleep(10000)
    assert calls == ["called"]


async def test_they_run_as_long_as_the_object_exists(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", interval=10, id="fn")(calls.noting(lambda name, **_: name))
    await operator.start_and_create(kex)
    await calls.wait_length(3)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 5
    count = len(calls)
    await asyncio.sleep(1000)
    assert len(calls) == count


@pytest.mark.lagging(False)
async def test_timers_of_many_objects_begin_at_once_after_a_restart(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.timer("kopfexamples", interval=60)(calls.noting(lambda name, **_: (name, now())))
    for i in range(100):
        await kex.create(f"obj{i}", finalizers=[FINALIZER])
    started = now()
    await operator.start()
    await calls.wait(lambda items: len({name for name, _ in items}) == 100)
    firsts = dict(reversed(calls.items))
    assert max(firsts.values()) - started < 1
    await calls.wait_length(400)
    pauses = get_pauses([time for name, time in calls if name == "obj99"])
    assert pauses == pytest.approx([60] * len(pauses), abs=1)


@pytest.mark.lagging(False)
async def test_timers_of_many_objects_do_not_hold_the_others(operator: Operator, sub: Objects, calls: Calls) -> None:
    """While they begin, the changes of other objects are handled in between."""
    ticks: Journal[float] = Journal()
    tasks: list[asyncio.Task[Any]] = []

    @kopf.timer("kopfexamples", interval=3600)
    async def tick(**_: Any) -> None:
        ticks.append(now())
        if len(ticks) == 1:
            tasks.append(asyncio.create_task(sub.merge({"spec": {"field": "new"}})))

    kopf.on.update("kopfstatusexamples")(calls.noting(lambda **_: len(ticks)))
    await operator.start_and_handle(sub)
    await operator.stop()
    for i in range(1000):
        metadata = {"name": f"obj{i}", "namespace": "default", "finalizers": [FINALIZER]}
        operator.cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata})
    await operator.start(watching=("kopfstatusexamples",))
    await ticks.wait_length(1000)
    await asyncio.gather(*tasks)
    assert len(calls) == 1
    assert calls[0] < 500


@pytest.mark.lagging(False)
async def test_timers_of_many_objects_can_be_spread_by_a_function(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.timer("kopfexamples", interval=60, initial_delay=lambda name, **_: int(name[3:]))(
        calls.noting(lambda name, **_: (int(name[3:]), now()))
    )
    for i in range(50):
        await kex.create(f"obj{i}", finalizers=[FINALIZER])
    started = now()
    await operator.start()
    await calls.wait_length(50)
    assert calls.items[:50] == [(i, pytest.approx(started + i, abs=1)) for i in range(50)]


async def test_timers_can_ask_if_they_are_to_stop(operator: Operator, kex: Objects, calls: Calls) -> None:
    """As daemons do; for those that take long."""

    @kopf.timer("kopfexamples", interval=10)
    async def async_fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append(("async", bool(stopped)))
        calls.append(("async", await stopped.wait(1000)))

    kopf.timer("kopfexamples", interval=10)(lambda stopped, **_: calls.append(("sync", stopped.wait(0))))
    await operator.start_and_create(kex)
    await calls.wait_length(2)
    await kex.delete_and_wait()
    assert calls[0] == ("async", False)
    assert calls.items[-1] == ("async", True)
    assert ("sync", False) in calls.items


@pytest.mark.lagging(False)
async def test_hours_of_patching_take_no_more_memory_than_minutes(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.timer("kopfexamples", interval=20, id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> str:
        calls.items.append(None)
        patch.status["count"] = len(calls)
        patch.fns.append(lambda body: body.setdefault("status", {}).update(fn=len(calls)))
        return "x" * 1000

    def count_objects() -> int:
        gc.collect()
        modules = (str(type(item).__module__) for item in gc.get_objects())
        return sum(name.startswith(("kopf", "aiohttp")) and "kopf_cluster" not in name for name in modules)

    await operator.start_and_create(kex)
    await asyncio.sleep(1200)
    counts = [count_objects()]
    await asyncio.sleep(2 * 3600)
    counts.append(count_objects())
    assert len(calls) >= 400
    assert counts[1] <= counts[0] * 1.1 + 20


@pytest.mark.lagging(False)
async def test_jumps_of_the_clock_affect_nothing(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtimes: list[int] = []

    kopf.timer("kopfexamples", interval=60)(calls.noting(lambda **_: now()))

    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, runtime: datetime.timedelta, **_: Any) -> None:
        runtimes.append(round(runtime.total_seconds()))
        if retry < 3:
            raise kopf.TemporaryError("not yet", delay=100)

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + datetime.timedelta(days=100 * len(calls))

    await operator.start_and_create(kex)
    await calls.wait_length(2)
    monkeypatch.setattr(datetime, "datetime", Jumping)
    await kex.wait_handled()
    await calls.wait_length(8)
    assert runtimes == pytest.approx([0, 100, 200, 300], abs=2)
    assert get_pauses(calls) == pytest.approx([60] * (len(calls) - 1), abs=2)
