"""What blocks a simulation in the real time, is named in seconds: the tests do not hang."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, SimulationError, SyncSimulation, replay
from tests.testing.kopfexamples import CRD, begin, make

PATIENCE = 0.3

pytestmark = pytest.mark.simulation(crds=CRD, operator=False, patience=PATIENCE)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What stuck threads wait for, so that they do not outlive the test."""
    event = threading.Event()
    yield event
    event.set()


async def test_sleeping_in_a_coroutine(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT)
    async def create_fn(**_: Any) -> None:
        time.sleep(3600)

    await begin(simulation, make())
    await simulation.settle()
    [call] = simulation.journal.get_calls()
    assert "time.sleep(3600) blocks the event loop" in call.error
    assert "await asyncio.sleep()" in call.error


async def sleep_of_the_import(**_: Any) -> None:
    sleep(3600)


async def go_round(**_: Any) -> None:
    while True:
        pass


@pytest.mark.parametrize(("fn", "place"), [(sleep_of_the_import, r"sleep\(3600\)"), (go_round, "go_round")])
async def test_coroutines_that_block(simulation: Simulation, fn: Any, place: str) -> None:
    kopf.on.event("kopfexamples")(fn)
    await begin(simulation, make())
    with pytest.raises(SimulationError, match=f"(?s)event loop is blocked for 0.3 seconds.*{place}"):
        await simulation.settle()


@pytest.mark.parametrize(
    "wait", [lambda released: sleep(0.01), lambda released: released.wait()], ids=["sleep", "wait"]
)
async def test_threads_that_work_for_long(
    simulation: Simulation, released: threading.Event, wait: Callable[..., object]
) -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        while not released.is_set():
            wait(released)

    await begin(simulation, make())
    with pytest.raises(SimulationError, match="(?s)function in a thread has been running for 0.3 seconds.*create_fn"):
        await simulation.settle()
    released.set()


def test_in_tests_with_no_coroutines(simulation: SyncSimulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        sleep(3600)

    simulation.restart()
    simulation.apply(make())
    with pytest.raises(SimulationError, match="event loop is blocked"):
        simulation.settle()


def test_the_test_may_take_its_time(simulation: SyncSimulation) -> None:
    simulation.restart()
    time.sleep(PATIENCE * 2)
    simulation.settle()


async def test_the_signal_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(SimulationError):
        await Simulation().__aenter__()
    assert signal.getsignal(signal.SIGUSR2) == before
    assert time.sleep is sleep


def test_threads_that_never_end(released: threading.Event) -> None:
    """The watchdog wakes the loop up every second meanwhile; and nobody waits for the thread in the end."""
    registry = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=registry)
    def create_fn(**_: Any) -> None:
        released.wait()

    def live() -> None:
        with SyncSimulation(registry=registry, crds=CRD, patience=1.2) as simulation:
            simulation.apply(make())
            simulation.advance(hours=2)

    with pytest.raises(SimulationError, match=r"(?s)running for 1.2 seconds.*released.wait\(\)"):
        live()
    released.set()


@pytest.mark.parametrize("entry", [Simulation, replay])
def test_the_default_patience_is_for_what_hangs(entry: Any) -> None:
    """Imports of clients take many seconds on busy machines."""
    assert inspect.signature(entry).parameters["patience"].default >= 30
