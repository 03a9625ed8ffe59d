"""
Permissions: whatever is denied to the operator, it does the rest, and says once which rule of RBAC to add.

The rules are taken from the messages and added, as a user would do, and then everything works without a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, FINALIZER, Objects, get_finalizers
from tests.behaviour.peerings import create_peering
from tests.behaviour.resources import create, create_in, define, define_namespaces
from tests.behaviour.roles import Roles
from tests.behaviour.roles import cluster as cluster
from tests.behaviour.roles import registry as registry
from tests.behaviour.roles import roles as roles
from tests.behaviour.running import Calls, Logs, Operator

KEX = {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"]}
SEEING_NAMESPACES = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}


def note_created(calls: Calls, resource: str = "kopfexamples") -> None:
    kopf.on.create(resource, id="fn")(calls.noting(lambda namespace, **_: namespace))


# ------------------------------------------------------------------ the resources


@pytest.mark.fastforward
async def test_resources_that_are_denied(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """They do not disturb the others, the API is not flooded, and they are served as soon as that is granted."""
    logs.expected.append("Cannot watch kopfstatusexamples")
    note_created(calls)
    note_created(calls, "kopfstatusexamples")
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]})
    await operator.start_and_handle(kex)
    pattern = "Cannot watch kopfstatusexamples.v1.kopf.dev in the whole cluster: not permitted to list it.*"
    message = (await logs.wait(pattern)).getMessage()
    assert message.endswith("- {apiGroups: [kopf.dev], resources: [kopfstatusexamples], verbs: [list, watch, patch]}")
    await asyncio.sleep(3600)
    assert cluster.counters["list", "kopfstatusexamples", 403] <= 65
    assert len(logs.find(pattern)) == 1
    roles.follow(message)
    await sub.create_and_wait()
    await operator.stop()
    assert len(logs.find(pattern)) == 1


@pytest.mark.fastforward
async def test_resources_that_are_only_read_need_no_more(
    operator: Operator,
    roles: Roles,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Cannot watch kopfexamples")

    @kopf.index("kopfexamples")
    def idx(name: str, **_: Any) -> str:
        return name

    kopf.on.event("kopfexamples", id="fn")(calls.noting(lambda idx, **_: sorted(idx[None])))
    await operator.launch()
    message = (await logs.wait("Cannot watch kopfexamples.*")).getMessage()
    assert message.endswith("- {apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [list, watch]}")
    roles.follow(message)
    await kex.create()
    await calls.wait_length(1)
    assert calls == [["obj"]]


@pytest.mark.fastforward
async def test_without_watching_everything_is_listed_again_and_again(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Cannot watch kopfexamples")
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "patch"]})
    await operator.launch()
    pattern = "Cannot watch kopfexamples.* not permitted to watch it.*"
    message = (await logs.wait(pattern)).getMessage()
    await kex.create_and_wait()
    await asyncio.sleep(3600)
    assert cluster.counters["list", "kopfexamples", 200] <= 65 + 1  # of the test itself
    roles.follow(message)
    await kex.create_and_wait("other")
    assert len(logs.find(pattern)) == 1


@pytest.mark.fastforward
async def test_only_some_of_the_namespaces(
    operator: Operator,
    roles: Roles,
    api: API,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Cannot watch kopfexamples")
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]}, namespace="ns1")
    await operator.launch(clusterwide=False, namespaces=["ns1", "ns2"])
    message = (await logs.wait("Cannot watch kopfexamples.*")).getMessage()
    assert "in the namespace 'ns2': not permitted to list it." in message
    assert "a Role in the namespace 'ns2'" in message
    await create_in(api, "ns2")
    await create_in(api, "ns1")
    await calls.wait_length(1)
    assert calls == ["ns1"]
    roles.follow(message, namespace="ns2")
    await calls.wait_length(2)


@pytest.mark.fastforward
async def test_objects_that_cannot_be_patched(
    operator: Operator,
    roles: Roles,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """It is said once for all of them; what is done is not done again for that."""
    logs.expected += ["Cannot patch kopfexamples", "The object could not be handled.*403"]
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch"]})
    await operator.start()
    await kex.create_all(("a", "b", "c"))
    await calls.wait_length(3)
    await asyncio.sleep(3600)
    [message] = logs.get_messages(level=30)
    assert message.startswith("Cannot patch kopfexamples.v1.kopf.dev in the namespace 'default': not permitted.")
    assert message.endswith("- {apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [patch]}")
    roles.follow(message)
    await kex.wait_all_handled(("a", "b", "c"))
    assert len(calls) == 3


@pytest.mark.fastforward
async def test_the_status_is_another_resource(operator: Operator, roles: Roles, sub: Objects, logs: Logs) -> None:
    logs.expected += ["Cannot patch kopfstatusexamples", "The object could not be handled.*403"]

    @kopf.on.create("kopfstatusexamples", id="fn")
    async def fn(**_: Any) -> str:
        return "result"

    roles.grant({**KEX, "resources": ["kopfstatusexamples"], "verbs": ["list", "watch", "patch"]})
    await operator.start_and_create(sub)
    roles.follow((await logs.wait(r"Cannot patch kopfstatusexamples.v1.kopf.dev \(status\).*")).getMessage())
    obj = await sub.wait_handled()
    assert obj["status"] == {"fn": "result"}


# ------------------------------------------------------------------ the namespaces


@pytest.mark.fastforward
async def test_exact_namespaces_are_served_as_they_are(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    calls: Calls,
    logs: Logs,
) -> None:
    """Even those that do not exist yet. It is not a problem, so it is not reported as one."""
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]})
    await operator.start(clusterwide=False, namespaces=["ns1", "later"])
    await create_in(api, "ns1")
    await calls.wait_length(1)
    define_namespaces(cluster, "later")
    await create_in(api, "later")
    await calls.wait_length(2)
    await asyncio.sleep(3600)
    assert cluster.counters["list", "namespaces", 403] <= 65
    assert not logs.get_messages(level=30)
    record = await logs.wait("Not permitted to list the namespaces. These are served as if they exist: later, ns1.*")
    assert record.levelname == "INFO"


@pytest.mark.fastforward
async def test_patterns_are_not_served_until_it_is_permitted(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Not permitted to list the namespaces")
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]})
    await operator.start(clusterwide=False, namespaces=["ns1", "*2", "!ns*,ns2"])
    message = (await logs.wait("Not permitted to list the namespaces.*")).getMessage()
    assert "The namespaces that match *2, !ns*,ns2 are not served, only the exact names are." in message
    assert message.endswith("- {apiGroups: [''], resources: [namespaces], verbs: [list, watch]}")
    await create_in(api, "ns2")
    await create_in(api, "ns1")
    await calls.wait_length(1)
    assert calls == ["ns1"]
    roles.follow(message)
    await calls.wait_length(2)
    define_namespaces(cluster, "next2")
    await create_in(api, "next2")
    await calls.wait_length(3)
    assert len(logs.find("Not permitted.*")) == 1


@pytest.mark.parametrize("disabled", [True, False])
async def test_permitted_namespaces_are_scanned(
    operator: Operator,
    roles: Roles,
    api: API,
    calls: Calls,
    logs: Logs,
    disabled: bool,
) -> None:
    """With the scanning disabled, it is enough to list them; or even nothing, for exact names."""
    operator.set("scanning.disabled", disabled)
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]})
    roles.grant({**SEEING_NAMESPACES, "verbs": ["list"] if disabled else ["list", "watch"]})
    await operator.start(clusterwide=False, namespaces=["ns?"])
    await create_in(api, "ns1")
    await calls.wait_length(1)
    assert not logs.get_messages(level=30)


# ------------------------------------------------------------------ the definitions


@pytest.mark.fastforward
async def test_definitions_of_resources(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """If everything is there already, they are not needed; so, it is not a problem."""
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]})
    await operator.start_and_handle(kex)
    assert (await logs.wait("New kinds of custom resources will not be noticed.*")).levelname == "INFO"
    await operator.stop()

    note_created(calls, "lates")
    roles.grant({**KEX, "resources": ["lates"], "verbs": ["list", "watch", "patch"]})
    await operator.start()
    record = await logs.wait("New kinds of custom resources will not be noticed.*", times=2)
    assert record.levelname == "WARNING"
    roles.follow(record.getMessage())
    define(cluster, "lates")
    await create(api, "lates", "obj")
    await calls.wait_length(2)
    assert len(logs.find("New kinds.*")) == 2


# ------------------------------------------------------------------ the peering


@pytest.mark.fastforward
@pytest.mark.parametrize("namespace", [None, "default"])
async def test_peering(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    namespace: str | None,
) -> None:
    """The operator works alone until it is permitted to talk to others."""
    peering = await create_peering(api, namespace)
    note_created(calls)
    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]}, SEEING_NAMESPACES)
    await operator.start(clusterwide=namespace is None, namespace=namespace)
    await kex.create_and_wait()
    record = await logs.wait("Not permitted to patch the peering.*")
    assert record.levelname == "WARNING"
    roles.follow(record.getMessage(), namespace=namespace)
    await peering.wait(len)
    await peering.put("other")
    await logs.wait("Pausing operations in favour of .*")


async def test_peering_can_be_permitted_for_one_object_only(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    calls: Calls,
    logs: Logs,
) -> None:
    peering = await create_peering(api, name="custom")
    note_created(calls)
    verbs = ["list", "watch", "patch"]
    roles.grant({**KEX, "verbs": verbs})
    roles.grant({**KEX, "resources": ["clusterkopfpeerings"], "resourceNames": ["custom"], "verbs": verbs})
    await operator.start(peering_name="custom")
    await peering.put("other")
    await logs.wait("Pausing operations in favour of .*")
    assert not logs.get_messages(level=30)


@pytest.mark.fastforward
async def test_everything_that_is_documented_as_needed_is_enough(
    operator: Operator,
    roles: Roles,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    logs: Logs,
) -> None:
    """With finalizers, results, peering, and namespaces that come and go: nothing is denied."""
    await create_peering(api, "default")

    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.delete("kopfexamples", id="fn")
    async def fn(**_: Any) -> str:
        return "result"

    roles.grant(
        SEEING_NAMESPACES,
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
    )
    roles.grant(
        {**KEX, "verbs": ["list", "watch", "patch"]},
        {**KEX, "resources": ["kopfpeerings"], "verbs": ["list", "watch", "patch"]},
        namespace="default",
    )
    await operator.start(clusterwide=False, namespaces=["default"], peering_name="default")
    obj = await kex.create_and_wait()
    assert get_finalizers(obj) == [FINALIZER]
    await kex.delete_and_wait()
    await operator.stop()
    assert not any(status == 403 for _, _, status in cluster.counters)
    assert not logs.get_messages(level=30)


@pytest.mark.fastforward
@pytest.mark.parametrize("lost", [{"list", "watch"}, {"patch", "delete"}, {"get", "list", "watch", "patch", "delete"}])
async def test_children_of_reconcilers_are_mended_when_it_is_permitted_again(
    operator: Operator, roles: Roles, kex: Objects, api: API, logs: Logs, lost: set[str]
) -> None:
    logs.expected.append("Cannot watch configmaps")
    maps, path = {"apiGroups": [""], "resources": ["configmaps"]}, "/api/v1/namespaces/default/configmaps"
    verbs = {"get", "list", "watch", "create", "patch", "delete"}

    @kopf.reconcile("kopfexamples", owns="configmaps", interval=100)
    async def fn(spec: Any, **_: Any) -> AsyncIterator[Any]:
        for name in spec["names"]:
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": name}}

    roles.grant({**KEX, "verbs": ["list", "watch", "patch"]}, {**maps, "verbs": sorted(verbs)})
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait(spec={"names": ["a", "b"]})
    roles.replace({**KEX, "verbs": ["list", "watch", "patch"]}, {**maps, "verbs": sorted(verbs - lost)})
    operator.cluster.faults.cut_watches()
    await asyncio.sleep(10)
    await api.request("DELETE", f"{path}/a")
    await kex.merge({"spec": {"names": ["a", "c"]}})
    await asyncio.sleep(300)
    roles.replace({**KEX, "verbs": ["list", "watch", "patch"]}, {**maps, "verbs": sorted(verbs)})
    await asyncio.sleep(200)
    listing = await api.request("GET", path)
    assert [item["metadata"]["name"] for item in listing["items"] if "data" in item and "key" in item["data"]] == [
        "a",
        "c",
    ]
