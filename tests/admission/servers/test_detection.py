"""Automatic choice of servers & tunnels by what the cluster tells about itself."""

from __future__ import annotations

import contextlib
import os
import pathlib
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

import kopf
from kopf._admission.servers.local import ClusterDetector, WebhookK3dServer
from kopf._client.http.api import APIClient
from tests.admission.servers.inside import connecting
from tests.admission.servers.serving import get_port, send, serving

CLUSTERS: dict[str, tuple[str, list[dict[str, Any]], str | None]] = {
    "k3d": ("v1.33.4+k3s1", [{"name": "k3d-k3s-default-server-0"}], "host.k3d.internal"),
    "minikube": (
        "v1.33.1",
        [{"name": "minikube", "labels": {"minikube.k8s.io/name": "minikube"}}],
        "host.minikube.internal",
    ),
    "minikube with a profile": (
        "v1.33.1",
        [{"name": "a"}, {"name": "b", "labels": {"minikube.k8s.io/name": "x"}}],
        "host.minikube.internal",
    ),
    "docker desktop": ("v1.32.2", [{"name": "docker-desktop", "labels": {}}], "host.docker.internal"),
    "docker desktop with kind": ("v1.32.2", [{"name": "desktop-control-plane"}], "host.docker.internal"),
    "kind": ("v1.33.1", [{"name": "kind-control-plane"}], None),
    "eks": ("v1.33.1-eks-113cf36", [{"name": "ip-10-0-0-1.ec2.internal"}], None),
    "no nodes": ("v1.33.1", [], None),
}


@contextlib.asynccontextmanager
async def inside_cluster(version: str, nodes: list[dict[str, Any]] | None) -> AsyncIterator[APIClient]:
    """Something that looks like a cluster of a known kind; with no permission to see the nodes if there are none."""

    async def get_version(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": version, "major": "1", "minor": "33"})

    async def get_nodes(_: web.Request) -> web.Response:
        if nodes is None:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        return web.json_response({"items": [{"metadata": metadata} for metadata in nodes]})

    app = web.Application()
    app.router.add_get("/version", get_version)
    app.router.add_get("/api/v1/nodes", get_nodes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with connecting(kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}")) as api:
            yield api
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", CLUSTERS)
async def test_clusters_are_recognised(kind: str) -> None:
    version, nodes, expected = CLUSTERS[kind]
    async with inside_cluster(version, nodes):
        assert await ClusterDetector().guess_host() == expected


async def test_nothing_is_guessed_without_permissions(caplog: pytest.LogCaptureFixture) -> None:
    async with inside_cluster("v1.33.1", None):
        assert await ClusterDetector().guess_host() is None
    assert "cannot be detected: GET /api/v1/nodes: 403 Forbidden" in caplog.text


async def test_k3s_is_recognised_without_permissions() -> None:
    async with inside_cluster("v1.33.1+k3s1", None):
        assert await ClusterDetector().guess_host() == WebhookK3dServer.DEFAULT_HOST


@pytest.mark.parametrize("kind", CLUSTERS)
async def test_auto_servers_use_what_is_recognised(kind: str) -> None:
    version, nodes, expected = CLUSTERS[kind]
    async with inside_cluster(version, nodes), serving(kopf.WebhookAutoServer(port=0, path="/root")) as running:
        config = running.configs[0]
        assert config["url"] == f"https://{expected or 'localhost'}:{get_port(config)}/root"
        assert (await send(config))[0] == 200


async def test_auto_servers_obey() -> None:
    async with serving(kopf.WebhookAutoServer(port=0, host="example.com")) as running:  # and ask nobody
        config = running.configs[0]
        assert config["url"] == f"https://example.com:{get_port(config)}"


async def test_auto_tunnels_need_no_tunnels_in_local_clusters() -> None:
    async with inside_cluster("v1.33.1+k3s1", []), serving(kopf.WebhookAutoTunnel(port=0, path="/root")) as running:
        config = running.configs[0]
        assert config["url"] == f"https://host.k3d.internal:{get_port(config)}/root"
        assert (await send(config))[0] == 200


async def test_auto_tunnels_open_tunnels_to_other_clusters(
    ngrok: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyngrok.conf.DEFAULT_NGROK_PATH", str(ngrok))
    async with inside_cluster("v1.33.1", []), serving(kopf.WebhookAutoTunnel(port=0, path="/root")) as running:
        url = urllib.parse.urlsplit(running.configs[0]["url"] or "")
        assert url.scheme == "https"
        assert url.hostname == "random.ngrok.example"
        assert url.path == "/root"
    assert os.access(ngrok, os.X_OK)


@pytest.mark.parametrize("cls", [kopf.WebhookAutoServer, kopf.WebhookAutoTunnel])
async def test_they_work_only_inside_of_operators(cls: Any) -> None:
    with pytest.raises(LookupError, match="only inside of a running operator"):
        async with serving(cls(port=0)):
            pass
