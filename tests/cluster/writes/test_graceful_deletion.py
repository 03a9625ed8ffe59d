"""
Pods on nodes are given time to end; nobody but a kubelet knows when they have ended.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.cluster.conftest import PODS, Client, Obj


def make_pod(name: str = "one", *, finalizers: tuple[str, ...] = (), **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "finalizers": list(finalizers)},
        "spec": {"containers": [{"name": "main", "image": "main"}], "nodeName": "kopf-node", **spec},
    }


def seconds_left(pod: Obj) -> float:
    until = datetime.datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    return (until - datetime.datetime.now(datetime.UTC)).total_seconds()


@pytest.mark.parametrize(
    ("spec", "options", "period"),
    [
        ({}, {}, 30),
        ({"terminationGracePeriodSeconds": 120}, {}, 120),
        ({"terminationGracePeriodSeconds": 120}, {"gracePeriodSeconds": 600}, 600),
        ({"terminationGracePeriodSeconds": 120}, {"gracePeriodSeconds": 1}, 1),
        ({}, {"gracePeriodSeconds": -1}, 1),
        ({}, {"gracePeriodSeconds": 2**62}, 2**31),
    ],
)
async def test_scheduled_pods_are_given_time(client: Client, spec: Obj, options: Obj, period: int) -> None:
    await client.create(PODS, make_pod(**spec))
    async with client.watch(PODS) as stream:
        marked = await client.delete(f"{PODS}/one", **options)
        assert await stream.take(2) == [("ADDED", "one"), ("MODIFIED", "one")]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == period
    assert period - 60 < seconds_left(marked) <= period
    assert await client.get(f"{PODS}/one") == marked
    assert await client.delete(f"{PODS}/one") == marked, "who has time, is not asked to hurry by asking again"


async def test_pods_go_at_once_by_force(client: Client) -> None:
    """As of `kubectl delete --force`; the first event tells that there is no time left, as of a real server."""
    await client.create(PODS, make_pod())
    async with client.watch(PODS) as stream:
        await client.delete(f"{PODS}/one", gracePeriodSeconds=0)
        events = [event for _ in range(3) if (event := await stream.next()) is not None]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    for event in events[1:]:
        assert event["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
        assert event["object"]["metadata"]["deletionTimestamp"]


async def test_the_time_is_only_shortened(client: Client) -> None:
    await client.create(PODS, make_pod())
    first = await client.delete(f"{PODS}/one")
    assert await client.delete(f"{PODS}/one", gracePeriodSeconds=100) == first
    assert await client.delete(f"{PODS}/one", gracePeriodSeconds=30) == first
    shorter = await client.delete(f"{PODS}/one", gracePeriodSeconds=5)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert seconds_left(first) - seconds_left(shorter) == pytest.approx(25, abs=1)
    assert shorter["metadata"].get("generation") == first["metadata"].get("generation")
    await client.delete(f"{PODS}/one", gracePeriodSeconds=0)
    assert (await client.call("GET", f"{PODS}/one")).status == 404


async def test_pods_that_end_early_stay_until_they_are_let_go(client: Client) -> None:
    """A kubelet tells first that all containers have ended, and lets the pod go later."""
    await client.create(PODS, make_pod())
    await client.delete(f"{PODS}/one")
    ended = await client.patch(f"{PODS}/one/status", {"status": {"phase": "Failed"}})
    assert await client.delete(f"{PODS}/one") == ended
    assert await client.get(f"{PODS}/one") == ended


async def test_pods_with_time_left_have_their_dependents_treated_as_wanted_first(client: Client) -> None:
    await client.create(PODS, make_pod(finalizers=("a/b",)))
    marked = await client.delete(f"{PODS}/one")
    assert await client.delete(f"{PODS}/one", propagationPolicy="Foreground") == marked
    shorter = await client.delete(f"{PODS}/one", propagationPolicy="Foreground", gracePeriodSeconds=1)
    assert shorter["metadata"]["finalizers"] == ["a/b", "foregroundDeletion"]


async def test_pods_that_go_are_shown_for_the_last_time(client: Client) -> None:
    await client.create(PODS, make_pod())
    gone = await client.delete(f"{PODS}/one", gracePeriodSeconds=0)
    assert (gone["kind"], gone["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert gone["metadata"]["deletionTimestamp"]


async def test_namespaces_wait_for_pods_on_nodes(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    await client.create("/api/v1/namespaces/ns/pods", make_pod())
    await client.create("/api/v1/namespaces/ns/configmaps", {"metadata": {"name": "one"}})
    await client.delete("/api/v1/namespaces/ns")
    async with client.watch("/api/v1/namespaces", fieldSelector="metadata.name=ns") as stream:
        conditions: dict[str, str] = {}
        while conditions.get("NamespaceContentRemaining") != "True":
            event = await stream.next()
            conditions = {one["type"]: one["status"] for one in event["object"]["status"].get("conditions", ())}
    pod = await client.get("/api/v1/namespaces/ns/pods/one")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.get("/api/v1/namespaces/ns/configmaps/one")
    await client.delete("/api/v1/namespaces/ns/pods/one", gracePeriodSeconds=0)
    await client.wait_gone("/api/v1/namespaces/ns")


async def test_pods_that_run_nowhere_go_at_once(client: Client) -> None:
    await client.create(PODS, make_pod(nodeName=""))
    await client.create(PODS, make_pod("two"))
    await client.patch(f"{PODS}/two/status", {"status": {"phase": "Succeeded"}})
    for name in ("one", "two"):
        await client.delete(f"{PODS}/{name}", gracePeriodSeconds=600)
        assert (await client.call("GET", f"{PODS}/{name}")).status == 404


async def test_finalizers_and_time_are_waited_for(client: Client) -> None:
    for name in ("one", "two"):
        await client.create(PODS, make_pod(name, finalizers=("a/b",)))
        assert (await client.delete(f"{PODS}/{name}"))["metadata"]["deletionGracePeriodSeconds"] == 30
    left = await client.patch(f"{PODS}/one", {"metadata": {"finalizers": None}})
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.get(f"{PODS}/one")
    await client.delete(f"{PODS}/one", gracePeriodSeconds=0)
    assert (await client.call("GET", f"{PODS}/one")).status == 404

    ended = await client.delete(f"{PODS}/two", gracePeriodSeconds=0)
    assert ended["metadata"]["deletionGracePeriodSeconds"] == 0
    await client.patch(f"{PODS}/two", {"metadata": {"finalizers": None}})
    assert (await client.call("GET", f"{PODS}/two")).status == 404


async def test_dry_deletions_change_nothing(client: Client) -> None:
    created = await client.create(PODS, make_pod())
    for period in (0, 30):
        shown = await client.delete(f"{PODS}/one", gracePeriodSeconds=period, dryRun=["All"])
        assert shown["metadata"]["deletionGracePeriodSeconds"] == period
        assert shown["metadata"]["deletionTimestamp"]
    assert await client.get(f"{PODS}/one") == created


async def test_evicted_and_selected_pods_are_given_time_too(client: Client) -> None:
    for name in ("one", "two"):
        await client.create(PODS, make_pod(name))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    await client.create(f"{PODS}/one/eviction", eviction)
    await client.delete(PODS)
    for name in ("one", "two"):
        assert (await client.get(f"{PODS}/{name}"))["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.create(f"{PODS}/one/eviction", {**eviction, "deleteOptions": {"gracePeriodSeconds": 0}})
    await client.delete(PODS, gracePeriodSeconds=0)
    assert (await client.get(PODS))["items"] == []
