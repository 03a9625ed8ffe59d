from __future__ import annotations

import asyncio
import base64
import contextlib
import pathlib
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import aiohttp
import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, KEXES, connect, make_config_map, make_definition, make_kex


def fetch(cluster: LocalCluster, path: str, token: str | None = None) -> int:
    request = urllib.request.Request(cluster.url + path, headers={"Authorization": f"Bearer {token or cluster.token}"})
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    try:
        with urllib.request.urlopen(request, context=context) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_in_a_thread_of_its_own() -> None:
    before = threading.active_count()
    with LocalCluster() as cluster:
        assert threading.active_count() == before + 1
        assert not [thread for thread in threading.enumerate() if thread.daemon]
        assert fetch(cluster, "/api/v1/namespaces") == 200
        assert fetch(cluster, "/api/v1/namespaces", token="wrong") == 401
    assert threading.active_count() == before
    with pytest.raises(urllib.error.URLError):
        fetch(cluster, "/version")


async def test_on_the_current_loop() -> None:
    before = threading.active_count(), asyncio.all_tasks()
    async with LocalCluster() as cluster:
        assert threading.active_count() == before[0]
        async with connect(cluster) as client:
            assert (await client.get("/version"))["minor"] == "36"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before[1]


async def test_stopping_ends_what_is_going_on() -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = LocalCluster()
        await cluster.__aenter__()
        client = await stack.enter_async_context(connect(cluster))
        stream = await stack.enter_async_context(client.watch(CONFIG_MAPS))
        cluster.faults.pause()
        held = asyncio.create_task(client.call("GET", CONFIG_MAPS))
        while client.session.connector is None or len(client.session.connector._acquired) < 2:
            await asyncio.sleep(0)
        await cluster.__aexit__(None, None, None)
        with pytest.raises(aiohttp.ClientError):
            await held
        with pytest.raises(aiohttp.ClientError):
            await stream.next()


def test_the_kubeconfig_has_everything_in_it_and_goes_away() -> None:
    with LocalCluster() as cluster:
        assert cluster.kubeconfig.stat().st_mode & 0o077 == 0
        config: Any = yaml.safe_load(cluster.kubeconfig.read_text())
        assert config["clusters"][0]["cluster"] == {
            "server": cluster.url,
            "certificate-authority-data": base64.b64encode(cluster.ca_data).decode(),
        }
        assert config["users"][0]["user"] == {"token": cluster.token}
        assert config["current-context"] == config["contexts"][0]["name"]
        assert config["contexts"][0]["context"]["namespace"] == "default"
    assert not cluster.kubeconfig.exists()
    assert not list(cluster.kubeconfig.parent.glob(f"*{cluster.kubeconfig.name}*"))


def test_the_kubeconfig_and_the_port_can_be_chosen(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kubeconfig"
    with LocalCluster() as other:
        port = int(other.url.rpartition(":")[2])
    with LocalCluster(port=port, kubeconfig=path) as cluster:
        assert cluster.url == f"https://127.0.0.1:{port}"
        assert cluster.kubeconfig == path
        assert path.exists()
    assert not path.exists()
    assert tmp_path.exists()


def test_a_busy_port_is_an_error_that_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kubeconfig"
    with LocalCluster() as other:
        port = int(other.url.rpartition(":")[2])
        with pytest.raises(OSError, match=str(port)), LocalCluster(port=port, kubeconfig=path):
            pass
        assert not path.exists()
        assert fetch(other, "/version") == 200


def test_an_unwritable_kubeconfig_is_an_error_that_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError), LocalCluster(kubeconfig=tmp_path / "nosuch" / "kubeconfig"):
        pass


def test_clusters_begin_anew_each_time() -> None:
    cluster = LocalCluster()
    versions = []
    for _ in range(2):
        with cluster:
            versions.append(cluster.apply(make_config_map())[0]["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]
    with pytest.raises(RuntimeError, match="not running"):
        cluster.apply(make_config_map())


async def test_one_cluster_runs_only_once_at_a_time() -> None:
    async with LocalCluster() as cluster:
        with pytest.raises(RuntimeError, match="already"):
            await cluster.__aenter__()


def test_starting_is_fast() -> None:
    started = time.process_time()
    with LocalCluster():
        assert time.process_time() - started < 0.5


def test_manifests_are_applied_in_a_thread(tmp_path: pathlib.Path) -> None:
    with LocalCluster() as cluster:
        file = tmp_path / "all.yaml"
        several = {"apiVersion": "v1", "kind": "List", "items": [make_kex("b"), make_kex("c")]}
        file.write_text(yaml.safe_dump_all([make_definition(), make_kex("a"), None, several]))
        applied = [(obj["kind"], obj["metadata"]["name"]) for obj in cluster.apply(file)]
        assert applied == [("CustomResourceDefinition", "kexes.example.com"), ("Kex", "a"), ("Kex", "b"), ("Kex", "c")]
        [changed] = cluster.apply("{apiVersion: example.com/v1, kind: Kex, metadata: {name: a}, spec: {x: 1}}")
        assert changed["spec"] == {"x": 1}
        assert changed["metadata"]["generation"] == 2
        with pytest.raises(Exception, match='no matches for kind "Nosuch" in version "v1"'):
            cluster.apply({"apiVersion": "v1", "kind": "Nosuch", "metadata": {"name": "x"}})
        assert fetch(cluster, f"{KEXES}/a") == 200


async def test_the_clients_of_others_are_not_trusted() -> None:
    async with LocalCluster() as one, LocalCluster() as two:
        assert one.token != two.token
        context = ssl.create_default_context(cadata=one.ca_data.decode())
        host, _, port = two.url.removeprefix("https://").partition(":")
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(host, int(port), ssl=context)


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("a: b", "the manifest has no apiVersion"),
        ("apiVersion: v1", "the manifest has no kind"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: name}", "the metadata is no object: 'name'"),
        ("{apiVersion: v1, kind: List, items: [name]}", "there is no object in the YAML: 'name'"),
    ],
)
def test_what_is_not_an_object_cannot_be_applied(manifest: str, problem: str) -> None:
    with LocalCluster() as cluster, pytest.raises(Exception, match=problem):
        cluster.apply(manifest)
