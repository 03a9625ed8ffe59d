"""Reconciling in trouble: crashes between any two writes, and controllers that work on the same children."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf.testing import APIStatus, Simulation, explore
from tests.behaviour.objects import Obj
from tests.behaviour.resources import make_crd
from tests.behaviour.test_replica_stories import _quiet as _quiet

OPTIONS: dict[str, Any] = {"crds": make_crd("KopfExample", "kopfexamples", status=True)}
PARENT: Obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "web"}}

registry = kopf.OperatorRegistry()


def make_deployment(name: str, image: str) -> Obj:
    labels = {"app": name}
    container = {"name": "main", "image": image, "resources": {"limits": {"cpu": "1000m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}


def make_config(name: str, text: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


@kopf.reconcile("kopfexamples", owns=["deployments", "configmaps"], registry=registry)
async def web_fn(name: str, spec: Any, **_: Any) -> AsyncIterator[Obj]:
    for item in spec.get("configs", []):
        yield make_config(item, spec["image"])
    deployment: Any = yield make_deployment(name, spec["image"])
    kopf.require_ready(deployment)
    yield make_config("done", spec["image"])


async def roll_out(simulation: Simulation) -> None:
    """Do what the controller of deployments does."""
    await simulation.settle()
    generation = (await simulation.get("deployments", "web"))["metadata"]["generation"]
    status: Obj = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    status |= {"observedGeneration": generation, "conditions": [{"type": "Available", "status": "True"}]}
    await simulation.patch("deployments", "web", {"status": status}, subresource="status")
    await simulation.settle()


@explore(registry=registry, troubles=["crash", "lost answer", "order"], **OPTIONS)
async def test_everything_converges_whatever_happens(simulation: Simulation) -> None:
    await simulation.apply({**PARENT, "spec": {"image": "x:1", "configs": ["a", "b"]}})
    await roll_out(simulation)
    await simulation.patch("kopfexamples", "web", {"spec": {"image": "x:2", "configs": ["b"]}})
    await roll_out(simulation)
    maps = {item["metadata"]["name"]: item.get("data") for item in await simulation.list("configmaps")}
    assert {name: data for name, data in maps.items() if not name.startswith("kube-")} == {
        name: {"text": "x:2"} for name in ("b", "done")
    }


@pytest.mark.simulation(registry=registry, **OPTIONS)
async def test_children_of_deleted_objects_stay_away_while_the_event_of_the_deletion_is_late(
    simulation: Simulation,
) -> None:
    await simulation.apply({**PARENT, "spec": {"image": "x:1"}})
    await roll_out(simulation)
    before = len(list_writes(simulation))
    simulation.faults.delay_event(1, 30, "kopfexamples")
    await simulation.delete("kopfexamples", "web")
    await simulation.advance(seconds=60)
    assert await simulation.list("deployments") == []
    assert len(list_writes(simulation)) == before


@pytest.mark.simulation(registry=registry, **OPTIONS)
async def test_children_that_somebody_deletes_are_created_again(simulation: Simulation) -> None:
    await simulation.apply({**PARENT, "spec": {"image": "x:1"}})
    await roll_out(simulation)
    await simulation.delete("deployments", "web")
    await simulation.settle()
    assert (await simulation.get("deployments", "web"))["spec"]["replicas"] == 2


def list_writes(simulation: Simulation) -> list[str]:
    """What the operator has changed in deployments."""
    lines = str(simulation.journal).splitlines()
    return [line for line in lines if re.search(r"operator \w+ deployments", line)]


@pytest.mark.simulation(registry=registry, simulate=True, **OPTIONS)
async def test_there_is_no_fight_with_controllers_of_children(simulation: Simulation) -> None:
    """A deployment is rolled out, and changed by its controller all the time; what is ours is mended once."""
    await simulation.apply({**PARENT, "spec": {"image": "x:1"}})
    await simulation.advance(minutes=5)
    await simulation.patch("kopfexamples", "web", {"spec": {"image": "x:2"}})
    await simulation.advance(minutes=5)
    before = await simulation.get("deployments", "web")
    assert kopf.is_ready(before)
    assert (await simulation.get("configmaps", "done"))["data"] == {"text": "x:2"}
    assert len(list_writes(simulation)) == 2, list_writes(simulation)
    await simulation.patch("deployments", "web", {"spec": {"replicas": 5}, "metadata": {"labels": {"x": "y"}}})
    await simulation.advance(minutes=5)
    after = await simulation.get("deployments", "web")
    assert (after["spec"]["replicas"], after["metadata"]["labels"]["x"]) == (2, "y")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 2
    assert len(list_writes(simulation)) == 3, list_writes(simulation)
    await simulation.restart()
    await simulation.advance(hours=1)
    assert (await simulation.get("deployments", "web"))["metadata"] == after["metadata"]


redefined = kopf.OperatorRegistry()


@kopf.on.update("kopfexamples", registry=redefined, backoff=1, retries=3)
@kopf.on.create("kopfexamples", registry=redefined, backoff=1, retries=3)
async def redefined_fn(spec: Any, patch: kopf.Patch, **_: Any) -> None:
    child = await kopf.apply({"apiVersion": "kopf.dev/v1", "kind": "Child", "spec": {"size": spec["size"]}})
    patch.status["seen"] = child["spec"]["size"]


@pytest.mark.simulation(registry=redefined, **OPTIONS)
async def test_kinds_that_are_defined_anew_are_found_again(simulation: Simulation) -> None:
    await simulation.apply(make_crd("Child", "children", status=False))
    await simulation.apply({**PARENT, "spec": {"size": 1}})
    await simulation.settle()
    await simulation.delete("customresourcedefinitions", "children.kopf.dev")
    await simulation.settle()
    with pytest.raises((APIStatus, LookupError)):
        await simulation.get("children.kopf.dev", "web")
    await simulation.apply(make_crd("Child", "offspring", status=False))
    await simulation.patch("kopfexamples", "web", {"spec": {"size": 2}})
    await simulation.settle()
    assert (await simulation.get("offspring.kopf.dev", "web"))["spec"] == {"size": 2}
    assert (await simulation.get("kopfexamples", "web"))["status"] == {"seen": 2}
