"""Virtual time: hours pass in no time, for coroutines, threads, daemons, and timers alike."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVarTuple

import pytest

import kopf
from kopf._virtual_time.process_patches import sleeping_virtually
from kopf._virtual_time.threaded_loop import VirtualEvent
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop
from kopf.testing import Simulation
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD, begin, make

_Ts = TypeVarTuple("_Ts")

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


@pytest.fixture(autouse=True)
def _in_no_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE


async def test_timers_tick_for_days(simulation: Simulation) -> None:
    ticks = []

    @kopf.timer("kopfexamples", interval=3600)
    async def tick(**_: Any) -> None:
        ticks.append(simulation.now)

    await begin(simulation, make())
    await simulation.advance(days=1, hours=1, minutes=1, seconds=1)
    assert len(ticks) == 26
    assert [round(b - a) for a, b in itertools.pairwise(ticks)] == [3600] * 25
    assert simulation.now == pytest.approx(25 * 3600 + 61, abs=1)


async def test_nothing_passes_but_what_is_advanced(simulation: Simulation) -> None:
    await simulation.advance(seconds=0)
    before = simulation.now
    await simulation.apply(make())
    assert simulation.now == before
    await simulation.advance(minutes=1.5)
    assert simulation.now - before == 90


async def test_coroutines_sleep_virtually(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        await asyncio.sleep(3600)

    await begin(simulation, make())
    await simulation.advance(minutes=59)
    assert not simulation.journal.get_calls()
    await simulation.advance(minutes=2)
    assert [call.duration for call in simulation.journal.get_calls()] == [3600]


async def test_threads_sleep_virtually(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        time.sleep(1800)
        time.sleep(1800)

    await simulation.restart()
    for name in ("one", "two"):
        await simulation.apply(make(name))
    await simulation.advance(minutes=61)
    assert [call.duration for call in simulation.journal.get_calls()] == [3600, 3600]


@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "coroutine"])
async def test_daemons_wait_virtually(simulation: Simulation, is_async: bool) -> None:
    rounds = []

    def watch_in_thread(stopped: Any, **_: Any) -> None:
        while not stopped:
            rounds.append(simulation.now)
            stopped.wait(600)

    async def watch(stopped: Any, **_: Any) -> None:
        while not stopped:
            rounds.append(simulation.now)
            await stopped.wait(600)

    kopf.daemon("kopfexamples")(watch if is_async else watch_in_thread)
    await begin(simulation, make())
    await simulation.advance(hours=1)
    assert len(rounds) == 7
    await simulation.delete("kopfexamples", "obj")
    await simulation.expect("kopfexamples", "obj", absent=True, within=5)  # it is woken up at once
    assert len(rounds) == 7


async def test_threads_run_one_at_a_time(simulation: Simulation) -> None:
    running: set[str] = set()
    most: list[int] = []

    @kopf.on.create("kopfexamples")
    def create_fn(name: str, **_: Any) -> None:
        running.add(name)
        most.append(len(running))
        threading.Event().wait(0.001)
        running.discard(name)

    await simulation.restart()
    for n in range(10):
        await simulation.apply(make(f"obj{n}"))
    await simulation.settle()
    assert len(simulation.journal.get_calls()) == 10
    assert max(most) == 1


def test_nothing_passes_while_a_thread_works_and_nobody_is_told() -> None:
    loop = VirtualTimeLoop(patience=0.05)
    loop.be_virtual(True)
    timer = loop.call_later(3600, lambda: None)
    try:
        loop.run_until_complete(loop.run_in_executor(None, threading.Event().wait, 0.5))
        assert loop.time() < timer.when()
    finally:
        loop.close()


class StarvedLoop(VirtualTimeLoop):
    """Its threads get no processor for a while right when they are to tell what they have come to."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if threading.current_thread() is not threading.main_thread():
            threading.Event().wait(0.3)
        return super().call_soon_threadsafe(callback, *args, context=context)


@pytest.mark.parametrize("sleep", [0, 10])
def test_nothing_passes_until_it_is_known_what_a_thread_has_come_to(sleep: float) -> None:
    """It is over, or sleeps, but cannot tell it yet."""
    loop = StarvedLoop(patience=0.05)
    loop.be_virtual(True)
    timer = loop.call_later(3600, lambda: None)

    def work() -> None:
        threading.Event().wait(0.2)  # longer than the patience, so it tells by itself what it has come to
        if sleep:
            time.sleep(sleep)

    try:
        with sleeping_virtually(loop):
            loop.run_until_complete(loop.run_in_executor(None, work))
        assert loop.elapsed == sleep
        assert loop.time() < timer.when()
    finally:
        loop.close()


def test_threads_are_woken_up_before_it_is_known_that_they_sleep() -> None:
    loop = StarvedLoop(patience=0.05)
    loop.be_virtual(True)
    event = VirtualEvent()
    loop.call_later(3600, lambda: None)

    def work() -> bool:
        threading.Event().wait(0.2)
        return event.wait(10)

    async def live() -> object:
        job = loop.run_in_executor(None, work)
        await asyncio.to_thread(threading.Event().wait, 0.3)  # by now, it sleeps, but cannot tell it yet
        event.set()
        return await job

    try:
        assert loop.run_until_complete(live())
        assert loop.elapsed == 0
    finally:
        loop.close()
