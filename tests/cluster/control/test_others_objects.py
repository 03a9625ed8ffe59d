"""
What controllers make of the objects and the words of others: they adopt pods, let them go, and keep conditions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Obj
from tests.cluster.control.test_pods_ending import CONTAINERS, is_running, make_pod, make_workload

pytestmark = pytest.mark.fastforward


CLUSTER = {"simulate": True}


def make_controller(kind: str, replicas: int) -> Obj:
    made = make_workload(kind, replicas=replicas)
    if kind == "ReplicationController":
        made["apiVersion"], made["spec"]["selector"] = "v1", {"app": "web"}
    return made


def owner_of(pod: Obj) -> Any:
    return [ref["kind"] for ref in pod["metadata"].get("ownerReferences") or ()]


KINDS = pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])


@KINDS
@pytest.mark.parametrize("is_first", [True, False])
async def test_matching_pods_of_nobody_are_adopted(cluster: LocalCluster, kind: str, is_first: bool) -> None:
    orphan = make_pod(labels={"app": "web"})
    for manifest in (orphan, make_controller(kind, 1)) if is_first else (make_controller(kind, 1), orphan):
        cluster.apply(manifest)
    await cluster.aio.wait_for("pod", "one", lambda pod: owner_of(pod) == [kind])
    [reference] = cluster.get("pod", "one")["metadata"]["ownerReferences"]
    assert reference["controller"] is reference["blockOwnerDeletion"] is True
    assert reference["uid"] == cluster.get(kind, "web")["metadata"]["uid"]
    await asyncio.sleep(5)
    assert len(cluster.list("pods")) == 1


@KINDS
async def test_pods_that_match_no_more_are_released(cluster: LocalCluster, kind: str) -> None:
    cluster.apply(make_controller(kind, 1))
    await cluster.aio.wait_for(kind, "web", lambda obj: obj["status"]["readyReplicas"] == 1)
    [pod] = cluster.list("pods")
    name = pod["metadata"]["name"]
    cluster.patch("pod", name, {"metadata": {"labels": {"app": "other"}}})
    await cluster.aio.wait_for("pod", name, lambda pod: owner_of(pod) == [])
    await cluster.aio.wait_for(kind, "web", lambda obj: obj["status"]["readyReplicas"] == 1)
    assert len(cluster.list("pods")) == 2
    assert is_running(cluster.get("pod", name))


async def test_what_is_not_wanted_is_not_adopted(cluster: LocalCluster) -> None:
    """Neither what belongs to another one, nor what is over, nor what has no such labels."""
    boss = cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss"}})
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "boss",
        "uid": boss["metadata"]["uid"],
        "controller": True,
    }
    labels = {"app": "web"}
    cluster.apply(make_pod(labels=labels, ownerReferences=[reference]))
    cluster.apply(make_pod(name="two"))
    cluster.apply(make_pod(name="over", labels=labels))
    cluster.patch("pod", "over", {"status": {"phase": "Failed"}}, subresource="status")
    cluster.apply(make_controller("ReplicaSet", 1))
    await cluster.aio.wait_for("replicaset", "web", lambda obj: obj["status"]["readyReplicas"] == 1)
    assert [owner_of(cluster.get("pod", name)) for name in ("one", "two", "over")] == [["ConfigMap"], [], []]
    assert len(cluster.list("pods")) == 4


async def test_conditions_of_others_are_kept_in_jobs(cluster: LocalCluster) -> None:
    template = {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}
    cluster.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job"},
            "spec": {"suspend": True, "template": template},
        }
    )
    await cluster.aio.wait_for("job", "job", "condition=Suspended")
    conditions = cluster.get("job", "job")["status"]["conditions"]
    foreign = {"type": "example.com/Seen", "status": "True", "reason": "Any"}
    cluster.patch("job", "job", {"status": {"conditions": [*conditions, foreign]}}, subresource="status")
    cluster.patch("job", "job", {"spec": {"suspend": False}})
    await cluster.aio.wait_for("job", "job", "condition=Complete")
    kept = {item["type"]: item for item in cluster.get("job", "job")["status"]["conditions"]}
    assert list(kept) == ["example.com/Seen", "SuccessCriteriaMet", "Complete"]
    assert kept["example.com/Seen"].items() >= foreign.items()


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
@pytest.mark.parametrize("orphans", [["deployment"], ["deployment", "replicaset"]])
async def test_deployments_that_come_again_go_on_with_what_was_orphaned(
    cluster: LocalCluster,
    strategy: str,
    orphans: list[str],
) -> None:
    """So selectors are changed with no downtime: ``kubectl delete --cascade=orphan``, and create it anew."""
    manifest = make_workload("Deployment", replicas=2, strategy={"type": strategy})
    cluster.apply(manifest)
    await cluster.aio.wait_for("deployment", "web", lambda obj: obj["status"]["availableReplicas"] == 2)
    before = [pod["metadata"]["uid"] for pod in cluster.list("pods")]
    for kind in orphans:
        [obj] = cluster.list(kind)
        cluster.delete(kind, obj["metadata"]["name"], propagation="Orphan")
        await cluster.aio.wait_for(kind, obj["metadata"]["name"], "delete")
    cluster.apply(manifest)
    await cluster.aio.wait_for("deployment", "web", lambda obj: obj["status"]["availableReplicas"] == 2)
    await asyncio.sleep(5)
    assert [pod["metadata"]["uid"] for pod in cluster.list("pods")] == before
    [replica_set] = cluster.list("replicasets")
    assert owner_of(replica_set) == ["Deployment"]


async def test_replica_sets_that_match_no_more_are_released(cluster: LocalCluster) -> None:
    cluster.apply(make_workload("Deployment", replicas=1))
    await cluster.aio.wait_for("deployment", "web", lambda obj: obj["status"]["availableReplicas"] == 1)
    [released] = cluster.list("replicasets")
    name = released["metadata"]["name"]
    cluster.patch("replicaset", name, {"metadata": {"labels": {"app": "other"}}})
    await cluster.aio.wait_for("replicaset", name, lambda obj: owner_of(obj) == [])


async def test_ending_pods_are_replaced_at_once(cluster: LocalCluster) -> None:
    cluster.apply(make_controller("ReplicaSet", 1))
    await cluster.aio.wait_for("replicaset", "web", lambda obj: obj["status"]["readyReplicas"] == 1)
    [old] = cluster.list("pods")
    name = old["metadata"]["name"]
    cluster.patch("pod", name, {"metadata": {"finalizers": ["example.com/hold"]}})
    cluster.delete("pod", name)
    await cluster.aio.wait_for(
        "replicaset",
        "web",
        lambda obj: (obj["status"]["readyReplicas"], obj["status"]["terminatingReplicas"]) == (1, 1),
    )
    assert len(cluster.list("pods")) == 2
    cluster.patch("pod", name, {"metadata": {"finalizers": None}})
    await cluster.aio.wait_for("replicaset", "web", lambda obj: obj["status"]["terminatingReplicas"] == 0)
    assert len(cluster.list("pods")) == 1
