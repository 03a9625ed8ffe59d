"""
Certificates of clients: who they say one is, and what one may do as such.
"""

from __future__ import annotations

import base64
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, Client, connect

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "devs"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "Group", "name": "devs"}],
}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(BINDING)
        yield cluster


async def ask(cluster: LocalCluster, kubeconfig: str, method: str, path: str, tmp_path: pathlib.Path) -> Any:
    [user] = yaml.safe_load(kubeconfig)["users"]
    assert "token" not in user["user"]
    pem = b"".join(base64.b64decode(user["user"][f"client-{part}-data"]) for part in ("certificate", "key"))
    (tmp_path / "client.pem").write_bytes(pem)
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    context.load_cert_chain(tmp_path / "client.pem")
    async with (
        aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.request(method, path, json={} if method == "POST" else None) as response,
    ):
        return response.status, await response.json()


async def test_roles_are_for_the_groups_of_certificates(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    for groups, expected in ((["devs"], 200), ([], 403)):
        status, _ = await ask(cluster, cluster.make_kubeconfig("jane", groups), "GET", CONFIG_MAPS, tmp_path)
        assert status == expected


async def test_certificates_of_other_authorities_are_refused(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    async with LocalCluster(bare=True) as other:
        kubeconfig = other.make_kubeconfig("jane", ["devs"])
    with pytest.raises(aiohttp.ClientError):
        await ask(cluster, kubeconfig, "GET", CONFIG_MAPS, tmp_path)


async def test_kubeconfigs_are_given_to_administrators(
    cluster: LocalCluster,
    client: Client,
    tmp_path: pathlib.Path,
) -> None:
    reply = await client.call("POST", "/_kopf/kubeconfig?user=jane&groups=devs,ops")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/yaml")
    _, review = await ask(cluster, reply.body.decode(), "POST", WHOAMI, tmp_path)
    assert review["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "ops", "system:authenticated"]}
    assert (await client.call("POST", "/_kopf/kubeconfig")).status == 400
    reply = await client.call("POST", "/_kopf/kubeconfig?user=x", headers={"Impersonate-User": "jane"}, expected=403)


async def test_certificates_survive_restarts(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(bare=True, data_dir=tmp_path / "data") as cluster:
        kubeconfig = cluster.make_kubeconfig("jane")
    async with LocalCluster(bare=True, data_dir=tmp_path / "data") as cluster:
        status, _ = await ask(cluster, kubeconfig, "GET", CONFIG_MAPS, tmp_path)
        assert status == 200


async def test_the_token_of_the_administrator_is_known_to_reviews(cluster: LocalCluster) -> None:
    async with connect(cluster) as client:
        review = await client.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": cluster.token}})
        assert review["status"]["authenticated"] is True
        assert review["status"]["user"]["username"] == "kubernetes-admin"


async def test_the_administrator_has_a_name() -> None:
    async with LocalCluster(bare=True, administrator="root") as cluster, connect(cluster) as client:
        review = await client.create(WHOAMI, {})
        assert review["status"]["userInfo"] == {
            "username": "root",
            "groups": ["system:masters", "system:authenticated"],
        }
