"""Which namespaces the operator serves, as they come, terminate, and go; and objects of no namespace."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, FINALIZER, Refused, get_finalizers, get_patience, is_handled
from tests.behaviour.resources import create_in, define_namespaces, make_crd
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE, wait_until


class Namespaces:
    """The namespaces of the cluster, and the objects in them."""

    def __init__(self, api: API) -> None:
        self._api = api

    def create(self, *names: str) -> None:
        define_namespaces(self._api.cluster, *names)

    async def delete(self, name: str) -> None:
        await self._api.request("DELETE", f"/api/v1/namespaces/{name}")

    async def wait_gone(self, name: str) -> None:
        async with asyncio.timeout(get_patience()):
            while True:
                try:
                    await self._api.request("GET", f"/api/v1/namespaces/{name}")
                except Refused:
                    return
                await asyncio.sleep(0.01)

    async def create_object(self, namespace: str, name: str = "obj", **metadata: Any) -> None:
        await create_in(self._api, namespace, name, **metadata)

    async def get_object(self, namespace: str, name: str = "obj") -> Any:
        return await self._api.request("GET", f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples/{name}")

    async def delete_object(self, namespace: str, name: str = "obj") -> None:
        await self._api.request("DELETE", f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfexamples/{name}")


@pytest.fixture
def namespaces(api: API) -> Namespaces:
    return Namespaces(api)


def note_created(calls: Calls) -> None:
    kopf.on.create("kopfexamples")(calls.noting(lambda namespace, **_: namespace))


NAMES = ["myapp-live", "myapp-pr-123", "myapp-pr-456", "otherapp-live", "otherapp-pr-123"]


@pytest.mark.parametrize(
    ("patterns", "served"),
    [
        (["myapp-live"], ["myapp-live"]),
        (["myapp-live", "otherapp-live"], ["myapp-live", "otherapp-live"]),
        (["*-pr-123"], ["myapp-pr-123", "otherapp-pr-123"]),
        (["*-pr-???"], ["myapp-pr-123", "myapp-pr-456", "otherapp-pr-123"]),
        (["!*-pr-*"], ["default", "myapp-live", "otherapp-live"]),
        (["myapp-*,!*-pr-*,*-pr-123"], ["myapp-live", "myapp-pr-123"]),
        (["otherapp-*,!*-live", "myapp-live"], ["myapp-live", "otherapp-pr-123"]),
        ([re.compile(r".*app-\w+")], ["myapp-live", "otherapp-live"]),
    ],
    ids=str,
)
async def test_matching_namespaces_are_served(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
    patterns: list[Any],
    served: list[str],
) -> None:
    """Both those that exist before the operator starts, and those that appear later; the others are not touched."""
    note_created(calls)
    kopf.on.delete("kopfexamples")(calls.noting(lambda namespace, **_: f"{namespace} deleted"))
    namespaces.create(*NAMES[::2])
    await operator.launch(clusterwide=False, namespaces=patterns)
    namespaces.create(*NAMES[1::2])
    for name in ["default", *NAMES]:
        await namespaces.create_object(name)
    await calls.wait_length(len(served))
    for name in served:
        await namespaces.delete_object(name)
    await calls.wait_length(2 * len(served))
    await operator.stop()
    assert sorted(calls) == sorted([*served, *(f"{name} deleted" for name in served)])
    for name in {"default", *NAMES} - set(served):
        assert not {"annotations", "finalizers"} & (await namespaces.get_object(name))["metadata"].keys()


async def test_namespaces_are_watched_one_by_one(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
    logs: Logs,
) -> None:
    """It is different from serving the whole cluster, for which the namespaces are not looked at."""
    note_created(calls)
    await operator.start(clusterwide=False, namespaces=["*"])
    assert logs.find("Starting the watch-stream for kopfexamples.v1.kopf.dev in 'default'.")
    await operator.restart(clusterwide=True)
    namespaces.create("later")
    await namespaces.create_object("later")
    await calls.wait_length(1)
    assert len(logs.find("Starting the watch-stream for namespaces.v1 cluster-wide.")) == 1
    assert len(logs.find("Starting the watch-stream for kopfexamples.v1.kopf.dev cluster-wide.")) == 1


async def test_absent_namespaces_are_watched_when_they_are_created(
    operator: Operator,
    cluster: LocalCluster,
    namespaces: Namespaces,
    calls: Calls,
    logs: Logs,
) -> None:
    note_created(calls)
    await operator.launch(clusterwide=False, namespaces=["ns1", "other*", "default"])
    await logs.wait(r"No namespaces match ns1, other\*. They will be served if they appear.")
    await logs.wait("Starting the watch-stream for kopfexamples.v1.kopf.dev in 'default'.")
    while ("list", "kopfexamples", 200) not in cluster.counters:
        await asyncio.sleep(0.01)
    assert cluster.counters["list", "kopfexamples", 200] == 1
    namespaces.create("ns1")
    await namespaces.create_object("ns1")
    await calls.wait_length(1)


async def test_terminating_namespaces_are_served_until_they_are_gone(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
    logs: Logs,
) -> None:
    """Otherwise, the objects with our finalizers would never let them go."""
    release = asyncio.Event()

    @kopf.on.delete("kopfexamples")
    async def fn(name: str, **_: Any) -> None:
        calls.append(f"{name} begins")
        await release.wait()
        calls.append(f"{name} ends")

    namespaces.create("ns1")
    await operator.start(clusterwide=False, namespaces=["ns*"])
    await namespaces.create_object("ns1", "a")
    async with asyncio.timeout(PATIENCE):
        while get_finalizers(await namespaces.get_object("ns1", "a")) != [FINALIZER]:
            await asyncio.sleep(0.01)
    await namespaces.delete("ns1")
    await calls.wait_length(1)
    assert not logs.find("Stopping the watch-stream for kopfexamples.v1.kopf.dev in 'ns1'.")
    release.set()
    await namespaces.wait_gone("ns1")
    await logs.wait("Stopping the watch-stream for kopfexamples.v1.kopf.dev in 'ns1'.")
    assert calls == ["a begins", "a ends"]


async def test_operators_that_start_in_terminating_namespaces_serve_them(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
) -> None:
    kopf.on.delete("kopfexamples")(calls.noting(lambda name, **_: name))
    namespaces.create("ns1")
    await namespaces.create_object("ns1", finalizers=[FINALIZER])
    await namespaces.delete("ns1")
    await operator.launch(clusterwide=False, namespaces=["ns1"])
    await namespaces.wait_gone("ns1")
    assert calls == ["obj"]


async def test_nothing_is_left_of_the_namespaces_that_are_gone(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
    logs: Logs,
) -> None:
    """Even if the deletion of their objects was not seen; and they are served anew if they are back."""
    indices: list[kopf.Index[Any, Any]] = []

    @kopf.index("kopfexamples")
    def idx(namespace: str, **_: Any) -> str:
        return namespace

    @kopf.daemon("kopfexamples")
    async def fn(namespace: str, stopped: kopf.AsyncDaemonStopperChecker, idx: Any, **_: Any) -> None:
        indices.append(idx)
        calls.append((namespace, "started"))
        await stopped.wait()
        calls.append((namespace, "stopped"))

    namespaces.create("ns1", "ns2")
    await operator.start(clusterwide=False, namespaces=["ns?"])
    for round in range(2):
        await namespaces.create_object("ns1")
        if round == 0:
            await namespaces.create_object("ns2")
        await calls.wait_length(2 + 2 * round)
        await namespaces.delete("ns1")
        await calls.wait_length(3 + 2 * round)
        await namespaces.wait_gone("ns1")
        await wait_until(lambda: list(indices[0].get(None, [])) == ["ns2"])
        await logs.wait("Stopping the watch-stream for kopfexamples.v1.kopf.dev in 'ns1'.", times=round + 1)
        if round == 0:
            namespaces.create("ns1")
    await operator.stop()
    assert sorted(calls) == [
        ("ns1", "started"),
        ("ns1", "started"),
        ("ns1", "stopped"),
        ("ns1", "stopped"),
        ("ns2", "started"),
        ("ns2", "stopped"),
    ]


async def test_vanishing_that_nobody_has_seen(
    operator: Operator,
    cluster: LocalCluster,
    namespaces: Namespaces,
    calls: Calls,
) -> None:
    """If the streams of the objects are mute, what has happened is concluded from the namespace that is gone."""
    kopf.daemon("kopfexamples")(calls.accompanying("started", lambda stopped, **_: stopped.reason))
    namespaces.create("ns1")
    await operator.start(clusterwide=False, namespaces=["ns1"])
    await namespaces.create_object("ns1")
    await calls.wait_length(1)
    cluster.faults.inject(503, verb="watch", resource="kopfexamples")
    cluster.faults.inject(503, verb="list", resource="kopfexamples")
    cluster.faults.cut_watches()
    await namespaces.delete("ns1")
    obj = "/apis/kopf.dev/v1/namespaces/ns1/kopfexamples/obj"
    await namespaces._api.request("PATCH", obj, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    await namespaces.wait_gone("ns1")
    await calls.wait_length(2)
    assert kopf.DaemonStoppingReason.RESOURCE_DELETED in calls[1]


async def test_scanning_only_once(
    operator: Operator,
    cluster: LocalCluster,
    namespaces: Namespaces,
    calls: Calls,
    logs: Logs,
) -> None:
    note_created(calls)
    namespaces.create("ns1")
    operator.set("scanning.disabled", True)
    await operator.start(clusterwide=False, namespaces=["ns*", "later", "never*"])
    await logs.wait(r"No namespaces match never\*. They will not be noticed until the restart.")
    namespaces.create("ns2", "later")
    for name in ("ns2", "ns1", "later"):
        await namespaces.create_object(name)
    await calls.wait_length(2)
    await operator.stop()
    assert sorted(calls) == ["later", "ns1"]  # exact names are served as if they exist
    assert cluster.counters["list", "namespaces", 200] == 1
    assert ("watch", "namespaces", 200) not in cluster.counters
    assert not any(resource == "customresourcedefinitions" for _, resource, _ in cluster.counters)


@pytest.mark.parametrize(
    "options",
    [
        {"namespaces": ["ns1", ""]},
        {"namespace": ","},
        {"namespaces": ["!"]},
    ],
)
async def test_empty_patterns_are_refused(operator: Operator, options: dict[str, Any]) -> None:
    await operator.launch(clusterwide=False, **options)
    with pytest.raises(ValueError, match="The pattern of namespaces is empty"):
        await operator.wait()


@pytest.mark.parametrize("scope", [{"clusterwide": False}, {"clusterwide": False, "namespaces": []}])
async def test_the_whole_cluster_is_the_default(
    operator: Operator,
    namespaces: Namespaces,
    calls: Calls,
    scope: dict[str, Any],
) -> None:
    """With no warnings, as it is the only possibility for the resources that are not in namespaces."""
    note_created(calls)
    await operator.start(**scope)
    namespaces.create("ns1")
    await namespaces.create_object("ns1")
    await calls.wait_length(1)


async def test_both_clusterwide_and_namespaces_are_refused(operator: Operator) -> None:
    await operator.launch(clusterwide=True, namespaces=["ns1"])
    with pytest.raises(ValueError, match="cluster-wide"):
        await operator.wait()


@pytest.mark.parametrize("options", [{"clusterwide": True}, {"clusterwide": False, "namespaces": ["ns1"]}], ids=str)
async def test_objects_of_no_namespace(operator: Operator, api: API, calls: Calls, options: dict[str, Any]) -> None:
    """They are served by all operators; Kubernetes events about them go to the default namespace."""
    define_namespaces(operator.cluster, "ns1")
    operator.cluster.apply(make_crd("ClusterExample", "clusterexamples", status=True, scope="Cluster"))

    @kopf.on.create("clusterexamples", id="create_fn")
    async def create_fn(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> str:
        calls.append((namespace, name))
        kopf.info(body, reason="Explicit", message="m")
        return "done"

    operator.set("posting.enabled", True)
    await operator.start(watching=("clusterexamples",), **options)
    path = "/apis/kopf.dev/v1/clusterexamples"
    head = {"apiVersion": "kopf.dev/v1", "kind": "ClusterExample", "metadata": {"name": "global"}}
    await api.request("POST", path, {**head, "spec": {"field": "value"}})
    await calls.wait_length(1)
    await operator.stop()
    assert calls == [(None, "global")]
    obj = await api.request("GET", f"{path}/global")
    assert is_handled(obj)
    assert obj["status"] == {"create_fn": "done"}
    (event,) = [event for event in await api.list_events() if event["reason"] == "Explicit"]
    assert event["involvedObject"]["name"] == "global"
