"""
Controllers with no kubelet: they create and delete pods, and the test decides what becomes of them.
"""

from __future__ import annotations

import asyncio

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.control.test_pods_ending import make_pod, make_workload

pytestmark = pytest.mark.fastforward


CLUSTER = {"simulate": "controllers"}


async def test_there_are_no_nodes_and_pods_stay_as_they_are(cluster: LocalCluster) -> None:
    cluster.apply(make_pod())
    await asyncio.sleep(60)
    assert cluster.list("nodes") == []
    assert cluster.get("pod", "one")["status"]["phase"] == "Pending"
    assert "nodeName" not in cluster.get("pod", "one")["spec"]


async def test_controllers_react_to_what_the_test_makes_of_pods(cluster: LocalCluster) -> None:
    cluster.apply(make_workload("Deployment", replicas=2))
    await cluster.aio.wait_for("deployment", "web", lambda obj: obj["status"]["replicas"] == 2)
    for pod in cluster.list("pods"):
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        cluster.patch("pod", pod["metadata"]["name"], {"status": ready}, subresource="status")
    await cluster.aio.wait_for("deployment", "web", "condition=Available")
    assert cluster.get("deployment", "web")["status"]["readyReplicas"] == 2


async def test_scheduled_pods_end_when_the_test_says_so(cluster: LocalCluster) -> None:
    pod = make_pod()
    cluster.apply({**pod, "spec": {**pod["spec"], "nodeName": "mine"}})
    cluster.delete("pod", "one")
    await asyncio.sleep(60)
    assert cluster.get("pod", "one")["metadata"]["deletionGracePeriodSeconds"] == 30
    cluster.delete("pod", "one", grace_period=0)
    assert cluster.list("pods") == []
