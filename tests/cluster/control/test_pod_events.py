"""
What the simulated scheduler and kubelet tell of pods, as `kubectl describe pod` shows it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Obj
from tests.cluster.control.test_pods_ending import CLUSTER, is_running, make_pod

__all__ = ["CLUSTER"]

pytestmark = pytest.mark.fastforward


def told(cluster: LocalCluster) -> list[tuple[Any, ...]]:
    events = sorted(cluster.list("events"), key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["type"], event["reason"], event["message"], event["source"]) for event in events]


KUBELET = {"component": "kubelet", "host": "kopf-node"}
SCHEDULED = (
    "Normal",
    "Scheduled",
    "Successfully assigned default/one to kopf-node",
    {"component": "default-scheduler"},
)
STARTED = ("Normal", "Started", "Started container main", KUBELET)
KILLING = ("Normal", "Killing", "Stopping container main", KUBELET)


async def test_the_life_of_a_pod_is_told(cluster: LocalCluster) -> None:
    cluster.apply(make_pod())
    pod = await cluster.aio.wait_for("pod", "one", is_running)
    assert told(cluster) == [SCHEDULED, STARTED]
    cluster.delete("pod", "one")
    await cluster.aio.wait_for("pod", "one", "delete")
    assert told(cluster) == [SCHEDULED, STARTED, KILLING]
    for event in cluster.list("events"):
        reference = event["involvedObject"]
        assert (reference["kind"], reference["apiVersion"], reference["namespace"], reference["name"]) == (
            "Pod",
            "v1",
            "default",
            "one",
        )
        assert reference["uid"] == pod["metadata"]["uid"]
        assert event["count"] == 1
        assert event["firstTimestamp"] == event["lastTimestamp"]
        assert event["metadata"]["name"].startswith("one.")


async def test_what_cannot_be_scheduled_is_told_once(cluster: LocalCluster) -> None:
    pod = make_pod()
    cluster.apply({**pod, "spec": {**pod["spec"], "nodeSelector": {"disk": "fast"}}})
    await cluster.aio.wait_for("pod", "one", lambda pod: pod["status"]["conditions"])
    cluster.patch("pod", "one", {"metadata": {"labels": {"any": "thing"}}})
    await asyncio.sleep(5)
    assert [event[:3] for event in told(cluster)] == [("Warning", "FailedScheduling", "0 nodes are available.")]


async def test_events_are_forgotten_after_an_hour(cluster: LocalCluster) -> None:
    cluster.apply(make_pod())
    await cluster.aio.wait_for("pod", "one", is_running)
    await asyncio.sleep(3500)
    assert len(told(cluster)) == 2
    await asyncio.sleep(200)
    assert told(cluster) == []


async def test_long_names_have_events_too(cluster: LocalCluster) -> None:
    pod: Obj = make_pod()
    pod["metadata"]["name"] = "x" * 63
    cluster.apply(pod)
    await cluster.aio.wait_for("pod", "x" * 63, is_running)
    assert len(told(cluster)) == 2
