"""Plain HTTP on the loopback: as fast as it can be, and for nobody but those with the token."""

from __future__ import annotations

import pathlib

import aiohttp
import pytest
import yaml

from kopf_cluster import LocalCluster


def read_url(kubeconfig: pathlib.Path) -> str:
    url: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return url


async def test_the_token_in_the_path_tells_who_comes() -> None:
    async with LocalCluster() as cluster, aiohttp.ClientSession() as session:
        url = read_url(await cluster.open_plain_port("alice", ["staff"]))
        assert url.startswith("http://127.0.0.1:")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        async with session.post(f"{url}/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review) as response:
            found = (await response.json())["status"]["userInfo"]
        assert (found["username"], found["groups"]) == ("alice", ["staff", "system:authenticated"])
        async with session.get(f"{url}/api/v1/namespaces?limit=1") as response:
            assert len((await response.json())["items"]) == 1


@pytest.mark.parametrize("path", ["", "/", "/api/v1/namespaces", "/wrong/api/v1/namespaces", "//api/v1/namespaces"])
async def test_others_are_refused(path: str) -> None:
    async with LocalCluster() as cluster, aiohttp.ClientSession() as session:
        base = read_url(await cluster.open_plain_port("alice")).rpartition("/")[0]
        headers = {"Authorization": f"Bearer {cluster.token}"}  # this is not the place for it
        async with session.get(f"{base}{path}", headers=headers) as response:
            assert response.status in (401, 403)  # with no token at all, they are anonymous


async def test_with_tls_the_path_tells_nothing() -> None:
    async with LocalCluster() as cluster, aiohttp.ClientSession() as session:
        token = read_url(await cluster.open_plain_port("alice")).rpartition("/")[2]
        async with session.get(f"{cluster.url}/{token}/api/v1/namespaces", ssl=False) as response:
            assert response.status in (401, 403, 404)


async def test_restarts_keep_it_and_the_end_closes_it() -> None:
    async with aiohttp.ClientSession() as session:
        async with LocalCluster() as cluster:
            url = read_url(await cluster.open_plain_port("alice"))
            await cluster.restart_async()
            async with session.get(f"{url}/version") as response:
                assert response.status == 200
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{url}/version")
