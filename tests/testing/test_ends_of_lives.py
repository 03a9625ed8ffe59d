"""Lives of the operator in simulations: what is left of them when they are over."""

from __future__ import annotations

import asyncio

import kubernetes
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


@kopf.index("secrets", registry=(indexing := kopf.OperatorRegistry()))
def index_fn(**_: object) -> None:
    pass


@pytest.mark.simulation(registry=indexing)
async def test_the_journal_tells_indices_from_daemons(simulation: Simulation) -> None:
    await simulation.apply("{apiVersion: v1, kind: Secret, metadata: {name: one}}")
    await simulation.settle()
    assert [call.reason for call in simulation.journal.get_calls("index_fn", name="one")] == ["index"]


clients = kopf.OperatorRegistry()


@kopf.on.create("secrets", registry=clients)
def create_page(name: str, **_: object) -> None:
    kubernetes.config.load_kube_config()  # type: ignore[no-untyped-call]
    page = kubernetes.client.V1ConfigMap(metadata=kubernetes.client.V1ObjectMeta(name=name))
    with kubernetes.client.ApiClient() as client:
        kubernetes.client.CoreV1Api(client).create_namespaced_config_map("default", page)


@pytest.mark.simulation(registry=clients)
async def test_clients_in_handlers_are_the_operator(simulation: Simulation) -> None:
    await simulation.apply("{apiVersion: v1, kind: Secret, metadata: {name: one}}")
    await simulation.expect("configmaps", "one")
    await simulation.settle()
    writes = simulation.journal.get_writes("operator", name="one")
    assert [write.resource for write in writes] == ["configmaps", "secrets"]
    assert simulation.writes == 2
