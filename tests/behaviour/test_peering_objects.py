"""Peering objects: which of them are used, whether they must exist, and what if they come and go."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, Objects
from tests.behaviour.peerings import PeeringObject, create_peering, define_peering
from tests.behaviour.resources import create_in, define_namespaces, undefine
from tests.behaviour.running import Calls, Logs, Operator

STANDALONE = "Default peering object is not found, falling back to the standalone mode."
PAUSING = "Pausing operations in favour of .*"
MISSING = "Pausing operations: the peering .* is mandatory, and it is absent.*"
RESUMING = "Resuming operations after the pause.*"


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    kopf.on.create("kopfexamples")(calls.noting(lambda namespace, name, **_: (namespace, name)))


# ------------------------------------------------------------------ automatic peering


@pytest.mark.parametrize("is_defined", [True, False])
async def test_without_the_default_object_it_is_standalone(
    operator: Operator,
    cluster: LocalCluster,
    kex: Objects,
    logs: Logs,
    is_defined: bool,
) -> None:
    if is_defined:
        define_peering(cluster)
    await operator.start_and_handle(kex)
    await operator.stop()
    assert len(logs.find(STANDALONE)) == 1


async def test_the_default_object_is_noticed_when_it_appears_and_vanishes(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
) -> None:
    peering = PeeringObject(api)
    await operator.start()
    await logs.wait(STANDALONE)
    define_peering(cluster)
    await peering.create()
    await peering.wait(len)
    await peering.put("other")
    await logs.wait(PAUSING)
    await peering.delete()
    await logs.wait(RESUMING)
    await peering.create(status={"other": {"priority": 1, "lastseen": "2100-01-01T00:00:00", "lifetime": 60}})
    await logs.wait(PAUSING, times=2)
    await undefine(api, "clusterkopfpeerings")
    await logs.wait(RESUMING, times=2)
    await kex.create_and_wait()


async def test_other_objects_are_of_no_interest(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
) -> None:
    other = await create_peering(api, name="other")
    await other.put("operator")
    await operator.start()
    await logs.wait(STANDALONE)
    await kex.create_and_wait()
    assert (await other.get_records()).keys() == {"operator"}


@pytest.mark.fastforward
async def test_custom_objects_are_optional_if_they_are_set_in_a_startup_handler(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
) -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.name = "custom"
        settings.peering.priority = 33

    define_peering(cluster)
    await operator.start()
    await logs.wait("The peering object 'custom' is not found, falling back to the standalone mode.")
    peering = PeeringObject(api, name="custom")
    await peering.create()
    [record] = (await peering.wait(len)).values()
    assert record["priority"] == 33


# ------------------------------------------------------------------ mandatory peering


async def test_mandatory_objects_are_waited_for(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    define_peering(cluster)
    peering = PeeringObject(api, name="custom")
    await operator.launch(peering_name="custom")
    message = (await logs.wait(MISSING)).getMessage()
    assert "{apiVersion: kopf.dev/v1, kind: ClusterKopfPeering, metadata: {name: custom}}" in message
    await kex.create()
    assert not calls.items
    await peering.create()
    await kex.wait_handled()
    await peering.delete()
    await logs.wait(MISSING, times=2)
    await kex.create("later")
    await peering.create()
    await kex.wait_handled("later")
    assert calls == [("default", "obj"), ("default", "later")]


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.fastforward
async def test_mandatory_kinds_are_waited_for(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
    scanned: bool,
) -> None:
    operator.set("scanning.disabled", not scanned)
    await operator.launch(peering_name="custom")
    message = (await logs.wait(MISSING)).getMessage()
    assert "the kind ClusterKopfPeering is not defined in the cluster" in message
    await create_peering(api, name="custom")
    await kex.create_and_wait()


async def test_mandatory_peering_by_settings(operator: Operator, logs: Logs) -> None:
    kopf.on.startup()(lambda settings, **_: setattr(settings.peering, "mandatory", True))
    await operator.launch()
    await logs.wait("Pausing operations: the peering 'default' cluster-wide is mandatory, and it is absent.*")


# ------------------------------------------------------------------ standalone


@pytest.mark.parametrize("options", [{"standalone": True}, {}], ids=["option", "settings"])
async def test_standalone_operators_look_at_nobody(
    operator: Operator,
    cluster: LocalCluster,
    peering: PeeringObject,
    kex: Objects,
    options: dict[str, Any],
) -> None:
    if not options:
        kopf.on.startup()(lambda settings, **_: setattr(settings.peering, "standalone", True))
    await peering.put("other")
    cluster.reset_counters()
    await operator.start(priority=1, **options)
    await kex.create_and_wait()
    await operator.stop()
    assert not any(resource.startswith("clusterkopfpeerings") for _, resource, _ in cluster.counters)
    assert (await peering.get_records()).keys() == {"other"}


# ------------------------------------------------------------------ kinds


@pytest.mark.parametrize("status", [False, True])
@pytest.mark.parametrize("group", ["kopf.dev", "zalando.org"])
@pytest.mark.parametrize("namespace", [None, "default"])
async def test_kinds(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
    group: str,
    namespace: str | None,
    status: bool,
) -> None:
    define_peering(cluster, group=group, status=status)
    peering = PeeringObject(api, namespace, group=group, status=status)
    await peering.create()
    await operator.start(clusterwide=namespace is None, namespace=namespace, priority=1)
    await kex.create_and_wait()
    await peering.put("other")
    await logs.wait(PAUSING)
    await peering.remove("other")
    await logs.wait(RESUMING)
    [record] = (await peering.get_records()).values()
    assert record["priority"] == 1
    await operator.stop()
    assert await peering.get_records() == {}


async def test_wrong_schemas_are_warned_of(operator: Operator, cluster: LocalCluster, api: API, logs: Logs) -> None:
    define_peering(cluster, preserve=False)
    await PeeringObject(api).create()
    await operator.start()
    await logs.wait("The API drops the records of the peering 'default' cluster-wide.*")
    await operator.stop()
    assert len(logs.get_messages(level=30)) == 1


async def test_the_newer_group_is_preferred(operator: Operator, cluster: LocalCluster, api: API) -> None:
    for group in ("zalando.org", "kopf.dev"):
        define_peering(cluster, group=group)
        await PeeringObject(api, group=group).create()
    await operator.start()
    assert len(await PeeringObject(api, group="kopf.dev").get_records()) == 1
    assert len(await PeeringObject(api, group="zalando.org").get_records()) == 0


# ------------------------------------------------------------------ several namespaces


@pytest.fixture
async def peerings(cluster: LocalCluster, api: API) -> list[PeeringObject]:
    """The peering objects in three namespaces."""
    names = ["ns1", "ns2", "ns3"]
    define_namespaces(cluster, *names)
    return [await create_peering(api, name) for name in names]


async def test_there_is_one_object_per_served_namespace(
    operator: Operator,
    api: API,
    peerings: list[PeeringObject],
    calls: Calls,
    logs: Logs,
) -> None:
    """And one peer in one of them is enough to pause the operator."""
    await operator.start(clusterwide=False, namespaces=["ns1", "ns2"])
    assert [len(await peering.get_records()) for peering in peerings] == [1, 1, 0]
    await peerings[2].put("other")
    await create_in(api, "ns1", "a")
    await calls.wait_length(1)
    await peerings[0].put("other")
    await peerings[1].put("other")
    await logs.wait(PAUSING, times=2)
    await create_in(api, "ns1", "b")
    await create_in(api, "ns2", "c")
    await peerings[0].remove("other")
    await peerings[0].wait(lambda records: "other" not in records)
    assert not logs.find(RESUMING)
    await peerings[1].remove("other")
    await calls.wait_length(3)
    await operator.stop()
    assert sorted(calls) == [("ns1", "a"), ("ns1", "b"), ("ns2", "c")]
    assert [len(await peering.get_records()) for peering in peerings] == [0, 0, 1]


async def test_there_can_be_one_object_for_all_namespaces(
    operator: Operator,
    api: API,
    peerings: list[PeeringObject],
) -> None:
    """If it is said so: the same one as of the cluster-wide operators."""

    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        assert settings.peering.namespaced
        settings.peering.clusterwide = True

    common = PeeringObject(api)
    await common.create()
    await operator.start(clusterwide=False, namespaces=["ns1", "ns2"])
    assert [len(await peering.get_records()) for peering in [common, *peerings]] == [1, 0, 0, 0]


async def test_requests_are_few(
    operator: Operator,
    cluster: LocalCluster,
    peerings: list[PeeringObject],
    kex: Objects,
) -> None:
    cluster.reset_counters()
    await operator.start(clusterwide=False, namespaces=["ns1", "ns2", "default"])
    await kex.create_and_wait()
    await operator.stop()
    requests = {key[:2]: count for key, count in cluster.counters.items() if key[2] == 200}
    assert requests["list", "kopfpeerings"] == requests["watch", "kopfpeerings"] == 3
    assert requests["patch", "kopfpeerings"] == 2 * 2  # in, and out
    assert requests["get", ""] == 1 + 2 * 2  # the version; the resources of the peering, and of the handlers


async def test_it_is_mandatory_in_every_namespace(
    operator: Operator,
    api: API,
    peerings: list[PeeringObject],
    calls: Calls,
    logs: Logs,
) -> None:
    await peerings[1].delete()
    await operator.launch(clusterwide=False, namespaces=["ns1", "ns2"], peering_name="default")
    message = (await logs.wait(MISSING)).getMessage()
    assert "{apiVersion: kopf.dev/v1, kind: KopfPeering, metadata: {name: default, namespace: ns2}}" in message
    await create_in(api, "ns1", "a")
    assert not calls.items
    await peerings[1].create()
    await calls.wait_length(1)


async def test_it_is_not_mandatory_in_namespaces_that_terminate(
    operator: Operator,
    api: API,
    peerings: list[PeeringObject],
    calls: Calls,
) -> None:
    """The object vanishes there before those with our finalizers; a paused operator would never release them."""
    kopf.on.delete("kopfexamples")(calls.noting(lambda namespace, name, **_: (namespace, name, "deleted")))
    await operator.start(clusterwide=False, namespaces=["ns*"], peering_name="default")
    await create_in(api, "ns1", "a")
    await calls.wait_length(1)
    await api.request("DELETE", "/api/v1/namespaces/ns1")
    await calls.wait_length(2)
    await create_in(api, "ns2", "b")
    await calls.wait_length(3)
    assert calls == [("ns1", "a"), ("ns1", "a", "deleted"), ("ns2", "b")]


@pytest.mark.fastforward
async def test_namespaces_that_come_and_go(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    peerings: list[PeeringObject],
    calls: Calls,
    logs: Logs,
) -> None:
    """New ones do not interrupt the work in the others, unless there is somebody in them."""
    await operator.start(clusterwide=False, namespaces=["ns*"])
    define_namespaces(cluster, "ns-new")
    await create_in(api, "ns-new", "a")
    await calls.wait_length(1)
    stops = "Stopping the watch-stream for kopfexamples.*"
    assert not logs.find(stops)
    peering = PeeringObject(api, "ns-new")
    await peering.create()
    await peering.wait(len)
    await peering.put("other")
    await logs.wait(PAUSING)
    await api.request("DELETE", "/api/v1/namespaces/ns-new")
    await logs.wait(RESUMING)
    await create_in(api, "ns1", "b")
    await calls.wait_length(2)


# ------------------------------------------------------------------ permissions


@pytest.mark.fastforward
@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_permissions_that_are_missing(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
    verb: str,
) -> None:
    """The operator works as far as possible, and says once which rule to add."""
    peering = await create_peering(api)
    rule = cluster.faults.inject(403, resource="clusterkopfpeerings", verb=verb)
    await operator.start_and_handle(kex)
    message = (await logs.wait(f"Not permitted to {verb} the peering 'default' cluster-wide.*")).getMessage()
    assert message.endswith("- {apiGroups: [kopf.dev], resources: [clusterkopfpeerings], verbs: [list, watch, patch]}")
    if verb != "list":  # for that, the test itself needs the permission
        cluster.faults.remove(rule)
        await peering.wait(len)
        await peering.put("other")
        await logs.wait(PAUSING)
    assert len(logs.find("Not permitted to .* the peering.*")) == 1


@pytest.mark.fastforward
async def test_permissions_for_mandatory_peering(
    operator: Operator,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    await create_peering(api)
    rule = cluster.faults.inject(403, resource="clusterkopfpeerings")
    await operator.launch(peering_name="default")
    await logs.wait("Pausing operations: the peering 'default' .* is mandatory, and it is not permitted.*")
    await kex.create()
    assert not calls.items
    cluster.faults.remove(rule)
    await kex.wait_handled()
