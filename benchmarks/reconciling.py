"""
Measure reconcilers against a local cluster in the same process:
``python -m benchmarks.reconciling [--parents 1000] [--conditions]``.

Their own code for a child that is as it is to be, by the time between two yields; what is written when an operator
starts with nothing to be changed; how soon a deleted child is back; what the cache of children takes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, ClassVar

import kopf
from benchmarks.simulations import CRD
from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controller_registry import Controllers
from kopf._controller.owned_objects import Ownership
from kopf._models.crds import make_definitions
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from kopf_cluster import APIStatus, LocalCluster

CALLS = 2000
CHILDREN = 10_000
DELETIONS = 20
READS = ("get", "list", "watch")
PARENTS = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
Obj = dict[str, Any]


def make_children(name: str) -> list[Obj]:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "registry.example.com/team/web:1.2.3",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "MODE", "value": "production"}, {"name": "LOG_LEVEL", "value": "info"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
    service = {"selector": labels, "ports": [port]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": service},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"mode": "a", "level": "b"}},
    ]


@dataclasses.dataclass
class Status:
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class Example(kopf.CustomResource[dict[str, Any], Status], group="kopf.dev", version="v1", kind="KopfExample"):
    """With it, the parents have conditions."""


class Measured:
    """A reconciler of three children, and what it has seen."""

    name: ClassVar[Any] = "kopfexamples"

    def __init__(self, **options: Any) -> None:
        self.calls = 0
        self.pauses: list[float] = []
        """Between two yields of one call, in seconds of CPU."""
        self.registry = kopf.OperatorRegistry()
        owns = ["deployments.apps", "services", "configmaps"]
        kopf.reconcile(self.name, owns=owns, registry=self.registry, **options)(self.reconcile)

    async def reconcile(self, name: str, **_: Any) -> AsyncGenerator[Obj, Obj]:
        for child in make_children(name):
            since = time.thread_time()
            yield child
            self.pauses.append(time.thread_time() - since)
        self.calls += 1

    async def wait(self, calls: int) -> None:
        while self.calls < calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def count_writes(cluster: LocalCluster) -> int:
    """How many requests there were to write anything, the refused ones included."""
    return sum(count for key, count in cluster.counters.items() if key[0] not in READS)


async def calm_down(cluster: LocalCluster) -> None:
    """Wait until nothing is written anymore."""
    count = -1
    while count != (count := count_writes(cluster)):  # noqa: ASYNC110
        await asyncio.sleep(3)


@contextlib.asynccontextmanager
async def running(measured: Measured) -> AsyncIterator[None]:
    settings, stop_flag = kopf.OperatorSettings(), asyncio.Event()
    settings.posting.enabled = False
    coro = kopf.operator(
        registry=measured.registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop_flag
    )
    task = asyncio.create_task(coro)
    try:
        yield
    finally:
        stop_flag.set()
        await task


def begin(cluster: LocalCluster, count: int) -> None:
    """Prepare the cluster, with so many parents."""
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    cluster.apply(CRD if Measured.name is not Example else make_definitions([Example])[0])
    for number in range(count):
        head = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": f"obj{number}"}}
        cluster.apply({**head, "spec": {"size": 1}})


async def measure_own_code() -> None:
    with LocalCluster(bare=True) as cluster:
        begin(cluster, 1)
        measured = Measured(interval=0.001)
        async with running(measured):
            await measured.wait(100)
            measured.pauses = []
            await measured.wait(CALLS)
        pauses = measured.pauses
        text = f"{statistics.median(pauses) * 1e6:.1f} µs, the least {min(pauses) * 1e6:.1f} µs"
        report("own code for a child of which nothing has changed", text)
        measure_memory([cluster.get(kind, "obj0") for kind in ("deployments.apps", "services", "configmaps")])


async def measure_life(count: int) -> None:
    with LocalCluster(bare=True) as cluster:
        begin(cluster, count)
        measured = Measured()
        async with running(measured):
            await measured.wait(count)
            await calm_down(cluster)
        report("writes of the creation", f"{count_writes(cluster)} for {count} parents, {3 * count} children")
        measured, writes = Measured(), count_writes(cluster)
        async with running(measured):
            await measured.wait(count)
            await calm_down(cluster)
            report("writes of a restart", f"{count_writes(cluster) - writes}, calls: {measured.calls}")
            measured.calls = 0
            delays = [await measure_deletion(cluster, f"obj{number}") for number in range(DELETIONS)]
            await calm_down(cluster)
            report("deleted children are back", f"in {max(delays) * 1000:.0f} ms at most")
            report("... and writes", f"{count_writes(cluster) - writes} for {DELETIONS}, calls: {measured.calls}")


async def measure_deletion(cluster: LocalCluster, name: str) -> float:
    """Delete a child, and tell in how many seconds it is there again."""
    uid = (await asyncio.to_thread(cluster.get, "configmaps", name))["metadata"]["uid"]
    await asyncio.to_thread(cluster.delete, "configmaps", name)
    since = time.perf_counter()
    while True:
        with contextlib.suppress(LookupError, APIStatus):
            if (await asyncio.to_thread(cluster.get, "configmaps", name))["metadata"]["uid"] != uid:
                return time.perf_counter() - since


def measure_memory(children: list[Obj]) -> None:
    """Fill the cache with such children, of other names and other owners."""
    owners = {PARENTS: frozenset({HandlerId("fn")})}
    raws = []
    for number in range(CHILDREN):
        child: Obj = json.loads(json.dumps(children[number % len(children)]))
        child["metadata"] |= {"name": f"child{number}", "uid": f"{number:036}", "resourceVersion": f"{number}"}
        child["metadata"]["ownerReferences"][0]["uid"] = f"{number // len(children):036}"
        raws.append(json.dumps(child, separators=(",", ":")).encode())
    size = sum(map(len, raws))
    tracemalloc.start()
    ownership = Ownership(Controllers(), owners, comparable_versions=True)
    for raw in raws:
        ownership.accept(WatchEvent("ADDED", KubeObject.from_json(raw)))
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report(
        f"memory of {CHILDREN} cached children", f"{taken / size:.2f} of their JSON, {size / CHILDREN:.0f} bytes each"
    )


def report(title: str, text: str) -> None:
    sys.stdout.write(f"{title:55} {text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parents", type=int, default=1000)
    parser.add_argument("--conditions", action="store_true", help="the reconciler sets the conditions of the parents")
    options = parser.parse_args()
    if options.conditions:
        Measured.name = Example
    asyncio.run(measure_own_code())
    asyncio.run(measure_life(options.parents))


if __name__ == "__main__":
    main()
