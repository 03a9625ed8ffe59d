"""Handlers that use other clients: those go by the real port of the cluster, in the same virtual time."""

from __future__ import annotations

import asyncio
import inspect
import pathlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import kr8s
import kr8s.asyncio.objects
import kr8s.objects
import kubernetes
import kubernetes.aio.client
import kubernetes.aio.config
import kubernetes_asyncio
import lightkube
import pykube
import pytest
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

import kopf
from kopf.testing import Simulation, SyncSimulation
from tests.patience import PATIENCE
from tests.testing.kopfexamples import CRD, begin, make

ROOT = pathlib.Path(__file__).parent.parent.parent
Client = Callable[[str], Awaitable[None] | None]
"""Creates a config map of the name."""


def make_configmap(name: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def use_kubernetes(name: str) -> None:
    kubernetes.config.load_kube_config()  # type: ignore[no-untyped-call]
    with kubernetes.client.ApiClient() as client:
        kubernetes.client.CoreV1Api(client).create_namespaced_config_map("default", make_configmap(name))


async def use_kubernetes_asyncio(name: str) -> None:
    await kubernetes_asyncio.config.load_kube_config()
    async with kubernetes_asyncio.client.ApiClient() as client:
        await kubernetes_asyncio.client.CoreV1Api(client).create_namespaced_config_map("default", make_configmap(name))


async def use_kubernetes_aio(name: str) -> None:
    await kubernetes.aio.config.load_kube_config()  # type: ignore[no-untyped-call]
    async with kubernetes.aio.client.ApiClient() as client:
        await kubernetes.aio.client.CoreV1Api(client).create_namespaced_config_map("default", make_configmap(name))


async def use_kr8s_asynchronously(name: str) -> None:
    client: Any = await kr8s.asyncio.api()
    configmap = await kr8s.asyncio.objects.ConfigMap(make_configmap(name), api=client)
    await configmap.create()


def use_kr8s(name: str) -> None:
    kr8s.objects.ConfigMap(make_configmap(name), api=kr8s.api()).create()


def use_lightkube(name: str) -> None:
    client = lightkube.Client()
    client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    client.close()


async def use_lightkube_asynchronously(name: str) -> None:
    client = lightkube.AsyncClient()
    await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    await client.close()


def use_pykube(name: str) -> None:
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    try:
        pykube.ConfigMap(api, make_configmap(name)).create()
    finally:
        api.session.close()


CLIENTS = [
    use_kubernetes,
    use_kubernetes_asyncio,
    use_kubernetes_aio,
    use_lightkube,
    use_lightkube_asynchronously,
    use_pykube,
]


@pytest.mark.simulation(crds=CRD, operator=False, patience=PATIENCE)
@pytest.mark.parametrize("use", CLIENTS)
async def test_clients(simulation: Simulation, use: Client) -> None:
    await check(simulation, use)


def test_clients_that_last() -> None:
    """The library keeps its connections, and a thread with an event loop, for the whole life of a process."""
    code = (
        "from kopf.testing import simulate; from tests.testing import test_clients as t; "
        "[simulate(lambda simulation: t.check(simulation, use), crds=t.CRD, operator=False, patience=t.PATIENCE)"
        " for use in (t.use_kr8s, t.use_kr8s_asynchronously)]"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def check(simulation: Simulation, use: Client) -> None:
    if inspect.iscoroutinefunction(use):

        @kopf.on.create("kopfexamples", id="create")
        async def create_fn(name: str, **_: Any) -> None:
            await asyncio.sleep(60)
            await use(name)
    else:

        @kopf.on.create("kopfexamples", id="create")
        def create_in_thread(name: str, **_: Any) -> None:
            time.sleep(60)
            use(name)

    await simulation.restart()
    names = [f"obj{n}" for n in range(5)]
    for name in names:
        await simulation.apply(make(name))
    await simulation.advance(seconds=61)
    calls = simulation.journal.get_calls("create")
    assert [(call.outcome, call.error) for call in calls] == [("succeeded", "")] * 5
    assert all(60 <= call.duration < 61 for call in calls)
    for name in names:
        assert await simulation.get("cm", name)
        assert simulation.user in {write.author for write in simulation.journal.get_writes(name=name)}


@pytest.mark.simulation(crds=CRD, operator=False, patience=PATIENCE)
async def test_trouble_hits_other_clients_of_the_operator_too(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create", backoff=10)
    async def create_fn(name: str, **_: Any) -> None:
        await use_kubernetes_asyncio(name)

    await simulation.restart()
    simulation.faults.fail("create", "configmaps", status=403, times=1)
    await simulation.apply(make())
    await simulation.settle(calm=15)
    assert [call.outcome for call in simulation.journal.get_calls("create")] == ["retried", "succeeded"]


@pytest.mark.simulation(crds=CRD)
def test_other_clients_need_no_tls(simulation: SyncSimulation) -> None:
    """It takes several times as long as all the rest of a request, for those who connect anew for every one."""
    config = yaml.safe_load(simulation.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"].startswith("http://127.0.0.1:")


@pytest.mark.simulation(crds=CRD, operator=False, patience=PATIENCE)
async def test_kubectl_in_handlers(simulation: Simulation, kubectl: str) -> None:
    """Clients in Go send no tokens without TLS."""

    @kopf.on.create("kopfexamples", id="create")
    def create_fn(name: str, **_: Any) -> None:
        subprocess.run([kubectl, "create", "configmap", name], check=True, capture_output=True, timeout=PATIENCE)

    await begin(simulation, make("one"))
    await simulation.settle()
    assert [write.author for write in simulation.journal.get_writes() if write.resource == "configmaps"][-1:] == [
        simulation.user
    ]


def test_children_are_applied_from_threads_in_virtual_time() -> None:
    """The thread waits for the loop, which waits for its threads otherwise."""
    registry = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=registry)
    def create_fn(name: str, **_: object) -> None:
        kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}})

    with SyncSimulation(registry=registry, crds=CRD) as simulation:
        for number in range(3):
            simulation.apply(make(f"obj{number}"))
        simulation.settle()
        for number in range(3):
            assert simulation.get("configmaps", f"obj{number}")["data"] == {"key": "value"}
