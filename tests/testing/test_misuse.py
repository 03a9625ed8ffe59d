"""Simulations that are used in a wrong way, say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf.testing import APIStatus, Simulation, SimulationError, SyncSimulation, simulate
from tests.testing.kopfexamples import CRD, begin, make

with_simulation = pytest.mark.simulation(crds=CRD, operator=False)


async def test_loops_with_the_real_time() -> None:
    with pytest.raises(SimulationError, match="needs an event loop with virtual time: use the fixture"):
        async with Simulation():
            pass


async def test_the_facade_in_coroutines() -> None:
    with pytest.raises(SimulationError, match="already running"), SyncSimulation():
        pass


@with_simulation
async def test_the_facade_in_a_simulation(simulation: Simulation) -> None:
    async def nothing(simulation: Simulation) -> None:
        pass

    with pytest.raises(SimulationError, match="already running"):
        simulate(nothing)


@with_simulation
def test_coroutines_of_the_facade(simulation: SyncSimulation) -> None:
    async def wait() -> float:
        simulation.advance(hours=1)
        raise AssertionError

    with pytest.raises(SimulationError, match="already running"):
        simulation.run(wait())


@with_simulation
async def test_handlers(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT, id="one")
    async def create_fn(**_: Any) -> None:
        await simulation.advance(hours=1)

    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT, id="two")
    async def create_two(**_: Any) -> None:
        await simulation.get("kopfexamples", "obj")

    await begin(simulation, make())
    await simulation.settle()
    errors = [call.error for call in simulation.journal.get_calls()]
    assert errors == ["SimulationError: The simulation is for the test: handlers must not use it."] * 2


@with_simulation
def test_handlers_in_threads(simulation: SyncSimulation) -> None:
    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT)
    def create_fn(**_: Any) -> None:
        simulation.advance(hours=1)

    simulation.restart()
    simulation.apply(make())
    simulation.settle()
    [call] = simulation.journal.get_calls()
    assert "A simulation is already running: coroutines and handlers cannot wait" in call.error


def test_before_the_beginning() -> None:
    facade = SyncSimulation()
    with pytest.raises(SimulationError, match="has not begun"):
        facade.advance(hours=1)
    with pytest.raises(SimulationError, match="has not begun"):
        facade.journal  # noqa: B018


async def test_the_simulation_before_the_beginning() -> None:
    simulation = Simulation()
    for method in (simulation.restart, simulation.settle, simulation.stop):
        with pytest.raises(SimulationError, match="has not begun"):
            await method()
    with pytest.raises(SimulationError, match="has not begun"):
        simulation.now  # noqa: B018


def test_after_the_end() -> None:
    with SyncSimulation(operator=False) as facade:
        pass
    with pytest.raises(SimulationError, match="is over"):
        facade.advance(hours=1)


def test_unknown_options() -> None:
    with pytest.raises(TypeError, match="nosuch"), SyncSimulation(nosuch=True):
        pass


@with_simulation
async def test_other_tasks_of_the_test(simulation: Simulation) -> None:
    """Several coroutines can wait at the same time."""
    await asyncio.gather(simulation.advance(seconds=10), simulation.advance(minutes=1, seconds=-40))
    assert simulation.now == pytest.approx(20, abs=1)


@with_simulation
@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda sim: sim.nosuch, AttributeError, "nosuch"),
        (lambda sim: sim.apply(""), SimulationError, "no objects to apply"),
        (lambda sim: sim.expect("kopfexamples"), SimulationError, "Give the name of the object"),
        (lambda sim: sim.advance(seconds=-1), ValueError, "only moves forward.*clock_jump"),
        (lambda sim: sim.advance(hours=1, minutes=-61), ValueError, "only moves forward"),
        (lambda sim: sim.apply([make()]), TypeError, "not of the type 'list'"),
        (lambda sim: sim.apply("obj.yaml"), ValueError, r"for a path, use pathlib.Path\(\)"),
        (lambda sim: sim.advance(seconds=float("nan")), ValueError, "not by nan"),
        (lambda sim: sim.advance(days=float("inf")), ValueError, "not by inf"),
        (lambda sim: sim.until(True), TypeError, "must be a function"),
        (
            lambda sim: sim.expect("kopfexamples", "obj", fields="x"),
            TypeError,
            "no such option: 'fields'. Did you mean 'field'",
        ),
        (lambda sim: sim.expect("kopfexamples", "obj", value="x"), TypeError, "needs field="),
        (lambda sim: sim.expect({"kind": "KopfExample"}), SimulationError, "must have apiVersion, kind, and metadata"),
        (lambda sim: sim.faults.fail("ptach"), ValueError, "no verb 'ptach'; it is one of create"),
        (lambda sim: sim.faults.fail("patch", time=1), TypeError, "no such option: 'time'. Did you mean 'times'"),
        (lambda sim: sim.faults.fail("patch", "kopfexampels"), APIStatus, 'resource type "kopfexampels"'),
        (lambda sim: sim.faults.fail(times=-1), ValueError, "can be negative"),
        (lambda sim: sim.faults.latency(-1), ValueError, "can be negative"),
        (lambda sim: sim.faults.partition(-1), ValueError, "got -1"),
        (lambda sim: sim.faults.stale_view(-1), ValueError, "got -1"),
    ],
)
def test_what_cannot_be_meant(
    simulation: SyncSimulation,
    misuse: Callable[[Any], Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        misuse(simulation)


@with_simulation
def test_edits_in_place(simulation: SyncSimulation) -> None:
    simulation.apply(make(size=1))
    with pytest.raises(SimulationError, match="must change the given one"):
        simulation.edit("kopfexamples", "obj", lambda obj: {**obj, "spec": {"size": 2}})
    simulation.edit("kopfexamples", "obj", lambda obj: obj["spec"].setdefault("size", 3))


@with_simulation
@pytest.mark.parametrize("name", ["kopfexample", "KopfExample", "kex/status", "kopfexamples.kopf.dev"])
def test_kinds_in_faults_are_called_by_any_name(simulation: SyncSimulation, name: str) -> None:
    rule = simulation.faults.fail("patch", name)
    assert rule.resource is not None
    assert rule.resource.removesuffix("/status") == "kopfexamples.kopf.dev"
