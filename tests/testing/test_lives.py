"""Lives of the operator: it starts, exits in order, starts again; and fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, SimulationError, SyncSimulation
from tests.behaviour.peerings import CRDS
from tests.testing.kopfexamples import CRD, begin, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


async def test_stop_is_in_order(simulation: Simulation) -> None:
    calls = []

    @kopf.on.cleanup()
    async def cleanup_fn(**_: Any) -> None:
        calls.append("cleanup")

    @kopf.daemon("kopfexamples")
    async def daemon_fn(stopped: Any, **_: Any) -> None:
        await stopped.wait()
        calls.append("daemon")

    await begin(simulation, make())
    await simulation.settle()
    await simulation.stop()
    assert calls == ["daemon", "cleanup"]
    assert not simulation.is_running
    await simulation.stop()
    assert calls == ["daemon", "cleanup"]


async def test_restart_is_a_new_life(simulation: Simulation) -> None:
    reasons = []

    @kopf.on.create("kopfexamples")
    @kopf.on.resume("kopfexamples")
    async def change_fn(reason: str, **_: Any) -> None:
        reasons.append(str(reason))

    await begin(simulation, make())
    await simulation.settle()
    await simulation.restart()
    await simulation.settle()
    assert reasons == ["create", "resume"]
    assert [call.reason for call in simulation.journal.get_calls()] == ["create", "resume"]


async def test_downtime(simulation: Simulation) -> None:
    @kopf.on.update("kopfexamples")
    async def update_fn(new: Any, patch: kopf.Patch, **_: Any) -> None:
        patch.status["seen"] = new["spec"]

    await begin(simulation, make(size=1))
    await simulation.settle()
    await simulation.stop()
    await simulation.patch("kopfexamples", "obj", {"spec": {"size": 2}})
    before = simulation.now
    await simulation.downtime(hours=1, minutes=5, seconds=1)
    assert simulation.now - before == pytest.approx(3901)
    await simulation.expect("kopfexamples", "obj", field="status.seen.size", value=2)


async def test_errors_of_the_start(simulation: Simulation) -> None:
    @kopf.on.startup()
    async def startup_fn(**_: Any) -> None:
        raise kopf.PermanentError("boo!")

    with pytest.raises(kopf.ActivityError, match="boo!"):
        await simulation.restart()
    assert not simulation.is_running


async def test_errors_of_the_exit(simulation: Simulation) -> None:
    @kopf.on.cleanup()
    async def cleanup_fn(**_: Any) -> None:
        raise kopf.PermanentError("boo!")

    await simulation.restart()
    with pytest.raises(kopf.ActivityError, match="boo!"):
        await simulation.stop()


async def test_wrong_handlers(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(nosuch: Any) -> None:
        pass

    with pytest.raises(TypeError, match="nosuch"):
        await simulation.restart()


async def test_the_operator_that_fails_fails_the_test(simulation: Simulation) -> None:
    await simulation.restart()
    simulation.faults.fail(status=401)
    simulation.faults.drop_watch()
    with pytest.raises(kopf.LoginError):
        await simulation.advance(hours=1)


@pytest.mark.simulation(operator=False)
def test_errors_of_the_start_in_the_beginning() -> None:
    @kopf.on.startup()
    async def startup_fn(**_: Any) -> None:
        raise kopf.PermanentError("boo!")

    with pytest.raises(kopf.ActivityError, match="boo!"), SyncSimulation():
        raise AssertionError


def test_settings_of_all_lives() -> None:
    seen = []
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = "example.com/mine"

    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        seen.append(settings.persistence.finalizer)
        settings.persistence.finalizer = "example.com/other"

    with SyncSimulation(settings=settings) as simulation:
        simulation.restart()
    assert seen == ["example.com/mine"] * 2
    assert settings.persistence.finalizer == "example.com/mine"


@pytest.mark.parametrize(("namespaces", "kind"), [([], "ClusterKopfPeering"), (["default"], "KopfPeering")])
def test_others_are_known_by_the_peering_of_the_same_scope(namespaces: list[str], kind: str) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        pass

    with SyncSimulation(crds=[CRD, CRDS], namespaces=namespaces, operator=False) as simulation:
        simulation.apply({"apiVersion": "kopf.dev/v1", "kind": kind, "metadata": {"name": "default"}})
        simulation.restart()
        simulation.settle()
        assert simulation.get(kind, "default")["status"]


def test_namespaces_of_the_operator() -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None:
        pass

    with SyncSimulation(crds=CRD, namespaces=["one", "two-*"]) as simulation:
        for name in ("one", "two", "two-a"):
            simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            simulation.apply({**make(), "metadata": {"name": "obj", "namespace": name}})
        simulation.settle()
        assert {call.namespace for call in simulation.journal.get_calls()} == {"one", "two-a"}


@pytest.mark.parametrize("error", [Exception("boom"), None])
async def test_the_operator_is_never_ready(simulation: Simulation, error: Exception | None) -> None:
    @kopf.on.startup()
    async def startup_fn(**_: Any) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    with pytest.raises(SimulationError, match="(?s)not ready in 3600 seconds.*the operator starts|startup_fn"):
        await simulation.restart()
    assert not simulation.is_running


def test_the_operator_never_exits() -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationError, match="does not exit in 3600 seconds"), SyncSimulation(registry=registry):
        pass
