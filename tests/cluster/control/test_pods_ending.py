"""
How simulated pods end: they are told to, take a moment, and go; whoever must not have two of them, waits for that.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Obj

pytestmark = pytest.mark.fastforward

CONTAINERS = [{"name": "main", "image": "nginx:1"}]


CLUSTER = {"simulate": True}


def make_pod(**metadata: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", **metadata},
        "spec": {"containers": CONTAINERS},
    }


def make_workload(kind: str, **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }


def is_running(pod: Obj) -> bool:
    return bool(pod["status"].get("phase") == "Running")


async def test_deleted_pods_are_asked_to_end_and_go(cluster: LocalCluster) -> None:
    cluster.apply(make_pod())
    await cluster.aio.wait_for("pod", "one", is_running)
    seen: list[tuple[str, Any]] = []
    cluster.observe(
        lambda observed: (
            seen.append(
                (observed.type, observed.after and observed.after["metadata"].get("deletionGracePeriodSeconds"))
            )
            if observed.resource == "pods"
            else None
        )
    )
    cluster.delete("pod", "one")
    await cluster.aio.wait_for("pod", "one", "delete")
    assert seen == [("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", None)]


async def test_ended_pods_wait_for_their_finalizers(cluster: LocalCluster) -> None:
    cluster.apply(make_pod(finalizers=["a/b"]))
    await cluster.aio.wait_for("pod", "one", is_running)
    cluster.delete("pod", "one")
    await cluster.aio.wait_for("pod", "one", lambda pod: pod["metadata"]["deletionGracePeriodSeconds"] == 0)
    cluster.patch("pod", "one", {"metadata": {"finalizers": None}})
    await cluster.aio.wait_for("pod", "one", "delete")


async def test_a_new_pod_of_the_name_is_not_ended_for_the_old_one(cluster: LocalCluster) -> None:
    cluster.apply(make_pod())
    await cluster.aio.wait_for("pod", "one", is_running)
    cluster.delete("pod", "one")
    cluster.delete("pod", "one", grace_period=0)
    cluster.apply(make_pod())
    await asyncio.sleep(5)
    assert is_running(cluster.get("pod", "one"))


async def test_replica_sets_and_deployments_tell_how_many_pods_end(cluster: LocalCluster) -> None:
    told: dict[str, list[int | None]] = {"replicasets.apps": [], "deployments.apps": []}
    cluster.apply(make_workload("Deployment", replicas=2))
    await cluster.aio.wait_for("deployment", "web", lambda obj: obj["status"]["availableReplicas"] == 2)
    cluster.observe(
        lambda observed: told.get(observed.resource, []).append(
            ((observed.after or {}).get("status") or {}).get("terminatingReplicas")
        )
    )
    cluster.patch("deployment", "web", {"spec": {"replicas": 0}})
    async with asyncio.timeout(60):
        while cluster.list("pods") or told["deployments.apps"][-1]:
            await asyncio.sleep(0.05)
    for numbers in told.values():
        assert 2 in numbers
        assert not numbers[-1]


async def count_at_once(cluster: LocalCluster, kind: str, count: int) -> int:
    """Change the template when all is ready; give how many pods there were at the same time before all are new."""
    await cluster.aio.wait_for(
        kind, "web", lambda obj: count == max(obj["status"].get(field, 0) for field in ("readyReplicas", "numberReady"))
    )
    present = {pod["metadata"]["name"] for pod in cluster.list("pods")}
    most = 0

    def follow(observed: Any) -> None:
        nonlocal most
        if observed.resource == "pods":
            (present.discard if observed.after is None else present.add)(observed.name)
            most = max(most, len(present))

    cluster.observe(follow)
    containers = [{"name": "main", "image": "nginx:2"}]
    cluster.patch(kind, "web", {"spec": {"template": {"spec": {"containers": containers}}}})
    async with asyncio.timeout(60):
        while [pod["spec"]["containers"][0]["image"] for pod in cluster.list("pods") if is_running(pod)] != [
            "nginx:2"
        ] * count:
            await asyncio.sleep(0.05)
    return most


async def test_daemon_sets_have_no_two_pods_on_a_node(cluster: LocalCluster) -> None:
    cluster.apply(make_workload("DaemonSet"))
    assert await count_at_once(cluster, "daemonset", 1) == 1


async def test_stateful_sets_replace_one_pod_after_another(cluster: LocalCluster) -> None:
    cluster.apply(make_workload("StatefulSet", replicas=3, serviceName="web"))
    unready: set[int] = set()

    def follow(observed: Any) -> None:
        if observed.resource == "pods":
            pods = [pod for pod in cluster.list("pods") if "deletionTimestamp" not in pod["metadata"]]
            unready.add(3 - sum(map(is_running, pods)))

    await cluster.aio.wait_for("statefulset", "web", lambda obj: obj["status"]["readyReplicas"] == 3)
    cluster.observe(follow)
    assert await count_at_once(cluster, "statefulset", 3) == 3
    assert max(unready) == 1


async def test_jobs_tell_how_many_pods_end(cluster: LocalCluster) -> None:
    told: list[Any] = []
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}},
        },
    }
    cluster.apply(job)
    await cluster.aio.wait_for("job", "job", lambda obj: obj["status"]["ready"] == 2)
    cluster.observe(
        lambda observed: (
            told.append(((observed.after or {}).get("status") or {}).get("terminating"))
            if observed.resource == "jobs.batch"
            else None
        )
    )
    cluster.patch("job", "job", {"spec": {"suspend": True}})
    await cluster.aio.wait_for("job", "job", lambda obj: 2 in told and obj["status"]["terminating"] == 0)
    assert cluster.list("pods") == []
