"""
Built-in kinds in two versions: whatever is written in one, can be read in the other.
"""

from __future__ import annotations

from typing import Any

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Client

CORE_EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SCALERS_V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
SCALERS_V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"

EVENT: dict[str, Any] = {
    "metadata": {"name": "e"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "c",
    "reportingInstance": "i",
    "action": "a",
    "reason": "r",
    "type": "Normal",
    "note": "text",
    "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
}
TARGET = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web"}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


async def test_events_are_the_same_in_both_groups(client: Client) -> None:
    created = await client.create(NEW_EVENTS, EVENT)
    assert (created["apiVersion"], created["note"]) == ("events.k8s.io/v1", "text")
    event = await client.get(f"{CORE_EVENTS}/e")
    assert (event["apiVersion"], event["message"], event["reportingComponent"]) == ("v1", "text", "c")
    assert event["involvedObject"]["name"] == "p"
    assert "note" not in event
    await client.patch(f"{CORE_EVENTS}/e", {"count": 2})
    assert (await client.get(f"{NEW_EVENTS}/e"))["deprecatedCount"] == 2


async def test_events_are_selected_by_the_fields_of_the_version(client: Client) -> None:
    await client.create(NEW_EVENTS, EVENT)
    for path, field in ((NEW_EVENTS, "regarding.name"), (CORE_EVENTS, "involvedObject.name")):
        assert len((await client.get(f"{path}?fieldSelector={field}=p"))["items"]) == 1
        assert (await client.get(f"{path}?fieldSelector={field}=q"))["items"] == []
    await client.call("GET", f"{NEW_EVENTS}?fieldSelector=involvedObject.name=p", expected=400)


async def test_events_are_watched_in_the_other_group(client: Client) -> None:
    async with client.watch(CORE_EVENTS) as core, client.watch(NEW_EVENTS) as new:
        await client.create(NEW_EVENTS, EVENT)
        event, other = await core.next(), await new.next()
        assert event is not None
        assert other is not None
        assert (event["object"]["apiVersion"], event["object"]["message"]) == ("v1", "text")
        assert (other["object"]["apiVersion"], other["object"]["note"]) == ("events.k8s.io/v1", "text")


async def test_namespaces_take_the_events_of_both_groups_away(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    await client.create(
        "/apis/events.k8s.io/v1/namespaces/n/events", {**EVENT, "regarding": {**EVENT["regarding"], "namespace": "n"}}
    )
    await client.delete("/api/v1/namespaces/n")
    await client.wait_gone("/api/v1/namespaces/n")


async def test_autoscalers_of_the_old_version_are_read_in_the_new_one(client: Client) -> None:
    await client.create(
        SCALERS_V1,
        {
            "metadata": {"name": "web"},
            "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5, "targetCPUUtilizationPercentage": 80},
        },
    )
    obj = await client.get(f"{SCALERS_V2}/web")
    assert obj["apiVersion"] == "autoscaling/v2"
    assert obj["spec"] == {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 5, "metrics": [CPU]}


async def test_nothing_of_new_autoscalers_is_lost_in_the_old_version(client: Client, cluster: LocalCluster) -> None:
    spec = {
        "scaleTargetRef": TARGET,
        "minReplicas": 2,
        "maxReplicas": 5,
        "metrics": [CPU, MEMORY],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
    }
    created = await client.create(SCALERS_V2, {"metadata": {"name": "web", "annotations": {"a": "b"}}, "spec": spec})
    old = await client.get(f"{SCALERS_V1}/web")
    assert old["spec"] == {
        "scaleTargetRef": TARGET,
        "minReplicas": 2,
        "maxReplicas": 5,
        "targetCPUUtilizationPercentage": 80,
    }
    assert set(old["metadata"]["annotations"]) == {
        "a",
        "autoscaling.alpha.kubernetes.io/metrics",
        "autoscaling.alpha.kubernetes.io/behavior",
    }
    await client.patch(f"{SCALERS_V1}/web", {"spec": {"maxReplicas": 6}})
    new = await client.get(f"{SCALERS_V2}/web")
    assert new["spec"] == {**created["spec"], "maxReplicas": 6}
    assert new["metadata"]["annotations"] == {"a": "b"}


async def test_autoscalers_are_listed_in_both_versions(client: Client) -> None:
    await client.create(SCALERS_V1, {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5}})
    for path, version in ((SCALERS_V1, "autoscaling/v1"), (SCALERS_V2, "autoscaling/v2")):
        listed = await client.get(path)
        assert (listed["apiVersion"], len(listed["items"])) == (version, 1)
