from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from kopf_cluster import APIStatus, AuditRecord, LocalCluster
from kopf_cluster.audit import LIMIT
from tests.cluster.conftest import CONFIG_MAPS, Client, connect, make_config_map, make_definition, make_kex


def brief(record: AuditRecord) -> tuple[Any, ...]:
    return (
        record.verb,
        f"{record.resource}/{record.subresource}".rstrip("/"),
        record.namespace,
        record.name,
        record.code,
    )


async def test_who_did_what(cluster: LocalCluster, client: Client, kexes: str) -> None:
    cluster.reset_audit()
    await client.create(kexes, make_kex())
    await client.patch(f"{kexes}/one/status", {"status": {"x": 1}})
    await client.get(kexes)
    await client.get("/apis/example.com/v1/kexes")
    await client.get("/api/v1/namespaces/default")
    async with client.watch(kexes, resourceVersion="1"):
        pass
    await client.delete(f"{kexes}/one")
    await client.call("GET", f"{kexes}/one")
    await client.call("DELETE", kexes)
    assert list(map(brief, cluster.audit)) == [
        ("create", "kexes", "default", "one", 201),
        ("patch", "kexes/status", "default", "one", 200),
        ("list", "kexes", "default", "", 200),
        ("list", "kexes", "", "", 200),
        ("get", "namespaces", "default", "default", 200),
        ("watch", "kexes", "default", "", 200),
        ("delete", "kexes", "default", "one", 200),
        ("get", "kexes", "default", "one", 404),
        ("deletecollection", "kexes", "default", "", 200),
    ]
    assert {record.group for record in cluster.audit} == {"example.com", ""}
    assert {record.user for record in cluster.audit} == {"kubernetes-admin"}


async def test_names_of_creations(cluster: LocalCluster, client: Client) -> None:
    created = await client.create(CONFIG_MAPS, {**make_config_map(), "metadata": {"generateName": "some-"}})
    await client.call("POST", CONFIG_MAPS, json=make_config_map(created["metadata"]["name"]))
    assert list(map(brief, cluster.audit)) == [
        ("create", "configmaps", "default", created["metadata"]["name"], 201),
        ("create", "configmaps", "default", created["metadata"]["name"], 409),
    ]


async def test_other_paths_agents_and_unknown_users(cluster: LocalCluster, client: Client) -> None:
    await client.call("GET", "/version", headers={"User-Agent": "me/1.0"})
    await client.call("GET", CONFIG_MAPS, headers={"Authorization": "Bearer wrong", "User-Agent": "you"})
    await client.call("GET", CONFIG_MAPS, headers={"Impersonate-User": "jane", "User-Agent": "kubectl"})
    assert [(record.user, record.agent, record.path, record.code) for record in cluster.audit] == [
        ("kubernetes-admin", "me/1.0", "/version", 200),
        ("", "you", CONFIG_MAPS, 401),
        ("jane", "kubectl", "", 200),
    ]


async def test_what_is_done_by_hand_is_audited_too(cluster: LocalCluster) -> None:
    cluster.apply(make_config_map())
    cluster.apply(make_config_map(data={"a": "b"}))
    with pytest.raises(APIStatus):
        await cluster.as_user("jane").aio.get("cm", "two")
    assert [(record.user, record.agent, *brief(record)) for record in cluster.audit] == [
        ("kubernetes-admin", "kopf-local-cluster", "create", "configmaps", "default", "one", 201),
        ("kubernetes-admin", "kopf-local-cluster", "patch", "configmaps", "default", "one", 200),
        ("jane", "kopf-local-cluster", "get", "configmaps", "default", "two", 404),
    ]


async def test_troubles_are_audited(cluster: LocalCluster, client: Client) -> None:
    cluster.faults.inject(503, verb="get")
    await client.call("GET", f"{CONFIG_MAPS}/one")
    assert list(map(brief, cluster.audit)) == [("get", "configmaps", "default", "one", 503)]
    cluster.faults.inject(action="lose-answer", verb="create")
    cluster.reset_audit()
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.create(CONFIG_MAPS, make_config_map())
    assert list(map(brief, cluster.audit)) == [("create", "configmaps", "default", "one", 201)]  # it is done


async def test_the_memory_is_limited_and_survives_restarts(cluster: LocalCluster) -> None:
    cluster.create(make_config_map())
    for _ in range(LIMIT):
        cluster.get("cm", "one")
    await cluster.restart_async()
    assert len(cluster.audit) == LIMIT
    assert {record.verb for record in cluster.audit} == {"get"}


async def test_the_audit_from_another_process(cluster: LocalCluster, client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    expected = {
        "user": "kubernetes-admin",
        "verb": "create",
        "group": "",
        "resource": "configmaps",
        "subresource": "",
        "namespace": "default",
        "name": "one",
        "path": "",
        "code": 201,
    }
    [record] = (await client.get("/_kopf/audit"))["requests"]
    assert record.pop("agent").startswith("Python/")
    assert record == expected
    await client.call("DELETE", "/_kopf/audit")
    assert await client.get("/_kopf/audit") == {"requests": []}


async def test_roles_are_seen_in_the_audit() -> None:
    async with LocalCluster(authorization="rbac", bare=True) as cluster:
        cluster.apply(make_definition())
        async with connect(cluster) as client:
            await client.call(
                "POST",
                "/apis/example.com/v1/namespaces/default/kexes",
                json=make_kex(),
                headers={"Impersonate-User": "jane"},
            )
        record = cluster.audit[-1]
        assert (record.user, record.group, record.resource, record.code) == ("jane", "example.com", "kexes", 403)
