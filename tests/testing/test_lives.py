"""Lives of the operator in simulations: what is left of them when they are over."""
from __future__ import annotations

import asyncio

import pytest

import kopf
from kopf.testing import Simulation

registry = kopf.OperatorRegistry()


@kopf.on.create("configmaps", registry=registry)
async def create_fn(patch: kopf.Patch, **_: object) -> None:
    patch.metadata.labels["is-started"] = "yes"
    await asyncio.sleep(1000)


@pytest.mark.simulation(registry=registry, operator=False)
async def test_nothing_is_left_of_killed_operators(simulation: Simulation) -> None:
    await simulation.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    before = {task.get_name() for task in asyncio.all_tasks()}
    await simulation.restart()
    await simulation.advance(seconds=10)
    assert "worker of configmaps.v1" in {task.get_name() for task in asyncio.all_tasks()}
    await simulation.crash()
    await asyncio.sleep(0)  # the connections are closed on the server's side
    assert {task.get_name() for task in asyncio.all_tasks()} - before == set()
