"""Operators that never let the time pass are stopped with an explanation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, SimulationError
from tests.testing.kopfexamples import CRD, begin, make

registry = kopf.OperatorRegistry()


@kopf.on.event("secrets", registry=registry)
async def follow(labels: kopf.Labels, patch: kopf.Patch, **_: object) -> None:
    patch.metadata.labels["seen"] = str(int(labels.get("seen", 0)) + 1)


@pytest.mark.simulation(registry=registry)
async def test_endless_reactions_are_noticed(simulation: Simulation) -> None:
    await simulation.apply("{apiVersion: v1, kind: Secret, metadata: {name: one}}")
    with pytest.raises(
        SimulationError, match="secrets default/one has been changed 300 times while no time has passed"
    ):
        await simulation.settle()
    with pytest.raises(SimulationError, match="while no time has passed"):  # at once, as time still does not pass
        await simulation.settle()


@pytest.mark.simulation(operator=False, crds=CRD)
async def test_coroutines_that_go_round(simulation: Simulation) -> None:
    @kopf.daemon("kopfexamples")
    async def daemon_fn(stopped: kopf.DaemonStopped, **_: Any) -> None:
        while not stopped:
            await asyncio.sleep(0)

    await begin(simulation, make())
    with pytest.raises(SimulationError, match="(?s)Time stands still, .*daemon_fn.*sleep"):
        await simulation.advance(minutes=5)
