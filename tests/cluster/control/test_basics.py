"""
What every cluster has from the beginning.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import NAMESPACES, Client, connect

SERVICE = "/api/v1/namespaces/default/services/kubernetes"


CLUSTER: dict[str, object] = {}


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_initial_namespaces_are_complete(cluster: LocalCluster, client: Client, namespace: str) -> None:
    await client.get(f"{NAMESPACES}/{namespace}/serviceaccounts/default")
    root = await client.get(f"{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt")
    assert root["data"]["ca.crt"].encode() == cluster.ca_data


async def test_new_namespaces_are_completed(client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
    await client.wait(f"{NAMESPACES}/new/serviceaccounts/default")
    await client.wait(f"{NAMESPACES}/new/configmaps/kube-root-ca.crt")


@pytest.mark.parametrize("path", ["serviceaccounts/default", "configmaps/kube-root-ca.crt"])
async def test_what_belongs_to_a_namespace_is_created_again(client: Client, path: str) -> None:
    before = await client.get(f"{NAMESPACES}/default/{path}")
    await client.delete(f"{NAMESPACES}/default/{path}")
    after = await client.wait(f"{NAMESPACES}/default/{path}")
    assert isinstance(after, dict)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"ca.crt": "spoilt"}},
        {"data": {"ca.crt": None}},
        {"data": {"other": "x"}},
        {"metadata": {"annotations": {"kubernetes.io/description": None}}},
    ],
)
async def test_the_certificate_is_restored_after_changes(
    cluster: LocalCluster, client: Client, change: dict[str, Any]
) -> None:
    path = f"{NAMESPACES}/default/configmaps/kube-root-ca.crt"
    before = await client.get(path)
    await client.patch(path, {**change, "metadata": {"labels": {"mine": "yes"}, **change.get("metadata", {})}})
    after = await cluster.aio.wait_for(
        "cm",
        "kube-root-ca.crt",
        lambda obj: (
            obj["data"] == before["data"] and obj["metadata"]["annotations"] == before["metadata"]["annotations"]
        ),
    )
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"] == {"mine": "yes"}  # what is not part of it, stays


async def test_deleted_namespaces_are_not_completed_again(client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
    await client.wait(f"{NAMESPACES}/new/configmaps/kube-root-ca.crt")
    await client.delete(f"{NAMESPACES}/new")
    await client.wait_gone(f"{NAMESPACES}/new")
    assert (await client.get(f"{NAMESPACES}/new/configmaps"))["items"] == []


async def test_the_api_has_a_service_with_endpoints(cluster: LocalCluster, client: Client) -> None:
    port = int(cluster.url.rpartition(":")[2])
    assert (await client.get(SERVICE))["spec"]["ports"][0]["targetPort"] == port
    endpoints = await client.get("/api/v1/namespaces/default/endpoints/kubernetes")
    assert endpoints["subsets"] == [
        {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}
    ]
    slices = await client.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
    assert slices["endpoints"][0]["addresses"] == ["127.0.0.1"]


async def test_bare_clusters_have_only_namespaces() -> None:
    async with LocalCluster(bare=True) as cluster, connect(cluster) as client:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
        for path in ("serviceaccounts", "configmaps", "services", "endpoints"):
            assert (await client.get(f"/api/v1/{path}"))["items"] == []
