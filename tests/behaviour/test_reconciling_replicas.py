"""Reconcilers of several replicas: parents and children are in different slots, and move to and fro."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf._values.slots import get_slot
from kopf.testing import Simulation
from tests.behaviour.test_replica_stories import _quiet as _quiet
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

NAMES = [f"obj{number}" for number in range(6)]


def declare(pause: float = 0.0) -> None:
    @kopf.reconcile("kopfexamples", owns=["configmaps"], id="reconcile")
    async def reconcile(name: str, spec: kopf.Spec, **_: Any) -> AsyncIterator[Any]:
        for part in ("first", "second"):
            data = {"value": str(spec["value"])}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{part}"}, "data": data}
            await asyncio.sleep(pause)


async def change(simulation: Simulation, value: int) -> None:
    for name in NAMES:
        await simulation.apply(make(name, value=value))


async def list_children(simulation: Simulation) -> list[dict[str, Any]]:
    return [obj for obj in await simulation.list("configmaps") if obj["metadata"]["name"].startswith("obj")]


async def check_children(simulation: Simulation, value: int) -> None:
    found = {obj["metadata"]["name"]: obj["data"]["value"] for obj in await list_children(simulation)}
    assert found == {f"{name}-{part}": str(value) for name in NAMES for part in ("first", "second")}


async def test_a_child_that_changes_wakes_the_owner_of_the_parent(simulation: Simulation) -> None:
    declare()
    replicas = await simulation.replicas(3, "shards")
    await change(simulation, 1)
    await simulation.advance(seconds=30)
    await check_children(simulation, 1)
    owners = {call.name: call.replica for call in simulation.journal.get_calls("reconcile")}
    assert len({*owners.values()}) == 3
    uids = {name: (await simulation.get("kopfexamples", name))["metadata"]["uid"] for name in NAMES}
    children = {f"{name}-{part}": name for name in NAMES for part in ("first", "second")}
    uids |= {child: (await simulation.get("configmaps", child))["metadata"]["uid"] for child in children}
    assert any(get_slot(uids[child]) // 86 != get_slot(uids[parent]) // 86 for child, parent in children.items())
    started = simulation.now
    for child in children:
        await simulation.patch("configmaps", child, {"data": {"value": "spoilt"}})
    await simulation.advance(seconds=2)
    await check_children(simulation, 1)
    await simulation.delete("configmaps", "obj0-first")
    await simulation.advance(seconds=2)
    await check_children(simulation, 1)
    calls = [call for call in simulation.journal.get_calls("reconcile") if call.time >= started]
    assert {(call.name, call.replica) for call in calls} == {*owners.items()}
    replicas.assert_one_owner()


@pytest.mark.parametrize("trouble", ["stop", "kill", "freeze", "partition"])
async def test_parents_move_in_the_middle_of_a_call(simulation: Simulation, trouble: str) -> None:
    declare(pause=3.0)
    replicas = await simulation.replicas(2, "shards")
    await simulation.advance(seconds=20)
    await change(simulation, 1)
    await simulation.advance(seconds=1)
    await replicas.scale(3)
    await change(simulation, 2)
    await simulation.advance(seconds=4)
    if trouble == "stop":
        await replicas[0].stop()
    else:
        getattr(replicas[0], trouble)()
    await change(simulation, 3)
    await simulation.advance(seconds=30)
    await check_children(simulation, 3)
    replicas[0].thaw()
    replicas[0].heal()
    await change(simulation, 4)
    await simulation.advance(seconds=30)
    await check_children(simulation, 4)
    for obj in await list_children(simulation):
        assert len(obj["metadata"]["ownerReferences"]) == 1
    replicas.assert_one_owner()
