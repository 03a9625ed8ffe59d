from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import pathlib
import sqlite3
import ssl
import stat
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import yaml
import yarl

from kopf_cluster import LocalCluster
from kopf_cluster.store.archive import SKIPPED, Archive, ArchiveError
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Record
from tests.certificates import trust
from tests.cluster.conftest import (
    CONFIG_MAPS,
    CRDS,
    KEXES,
    MERGE,
    Client,
    connect,
    make_config_map,
    make_definition,
    make_kex,
)
from tests.patience import PATIENCE

CONNECT = connect


def make_record(name: str, revision: int, data: bytes = b"{}") -> Record:
    return Record(("ns", name), revision, data, f"uid-{name}", {"a": "b"}, {"f": "g"}, ("owner",), ("fin",), True)


# ------------------------------------------------------------------------------------------ the data directory


async def test_objects_versions_and_credentials_are_there_after_a_restart(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        token, ca = cluster.token, cluster.ca_data
        cluster.apply(make_definition())
        kex = await client.create(KEXES, make_kex(spec={"a": 1}))
        kept = await client.create(CONFIG_MAPS, make_config_map("kept", data={"a": "b"}))
        await client.create(CONFIG_MAPS, make_config_map("gone"))
        await client.delete(f"{CONFIG_MAPS}/gone")
        last = int((await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"])
    assert stat.S_IMODE((tmp_path / "credentials.json").stat().st_mode) == 0o600
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        assert (cluster.token, cluster.ca_data) == (token, ca)
        assert await client.get(f"{KEXES}/one") == kex
        assert await client.get(f"{CONFIG_MAPS}/kept") == kept
        assert (await client.call("GET", f"{CONFIG_MAPS}/gone")).status == 404
        listed = int((await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"])
        changed = await client.patch(f"{CONFIG_MAPS}/kept", {"data": {"a": "c"}})
        assert last <= listed < int(changed["metadata"]["resourceVersion"]) < SKIPPED


async def test_restored_definitions_owners_and_namespaces_work(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        cluster.apply(make_definition())
        parent = await client.create(KEXES, make_kex("parent"))
        owner = {"apiVersion": "example.com/v1", "kind": "Kex", "name": "parent", "uid": parent["metadata"]["uid"]}
        await client.create(CONFIG_MAPS, make_config_map("child", metadata={"ownerReferences": [owner]}))
        await client.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "held"}}
        )
        held = "/api/v1/namespaces/held/configmaps"
        await client.create(held, make_config_map("holder", metadata={"finalizers": ["a/b"]}))
        await client.delete("/api/v1/namespaces/held")
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        await client.delete(f"{KEXES}/parent")
        await client.wait_gone(f"{CONFIG_MAPS}/child")
        await client.call("POST", held, json=make_config_map("late"), expected=403)
        await client.patch(f"{held}/holder", {"metadata": {"finalizers": None}})
        await client.wait_gone("/api/v1/namespaces/held")
        await client.delete(f"{CRDS}/kexes.example.com")
        await client.wait_gone(f"{CRDS}/kexes.example.com")


async def test_definitions_that_were_going_away_go_on_with_it(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        cluster.apply(make_definition())
        await client.create(KEXES, make_kex(metadata={"finalizers": ["a/b"]}))
        await client.delete(f"{CRDS}/kexes.example.com")
    async with LocalCluster(data_dir=tmp_path) as cluster, connect(cluster) as client:
        await client.wait(f"{KEXES}/one", lambda obj: "deletionTimestamp" in obj["metadata"])
        await client.patch(f"{KEXES}/one", {"metadata": {"finalizers": None}})
        await client.wait_gone(f"{CRDS}/kexes.example.com")


async def test_a_directory_cannot_be_shared(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(data_dir=tmp_path):
        with pytest.raises(ArchiveError, match=r"by another local cluster\?"):
            async with LocalCluster(data_dir=tmp_path):
                pass


async def test_broken_data_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cluster.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(ArchiveError, match="cannot be used"):
        async with LocalCluster(data_dir=tmp_path):
            pass


async def test_changes_are_written_soon_in_one_batch(tmp_path: pathlib.Path) -> None:
    archive, store = Archive(tmp_path), Store()
    assert archive.open() is None
    store.observers.append(archive.observe)
    for number in range(100):
        store.put("b", make_record(f"n{number % 10}", store.next_revision))
    store.remove("b", make_record("n0", store.next_revision))
    await asyncio.sleep(0.2)
    archive.close()  # with no flush, as if it was killed
    with sqlite3.connect(tmp_path / "cluster.sqlite") as database:
        assert database.execute("SELECT count(*) FROM records").fetchone() == (9,)
    database.close()


async def test_a_killed_server_leaves_a_gap_in_revisions(tmp_path: pathlib.Path) -> None:
    archive, store = Archive(tmp_path), Store()
    archive.open()
    store.observers.append(archive.observe)
    record = make_record("one", store.next_revision)
    store.put("b", record)
    archive.flush()
    store.put("b", make_record("lost", store.next_revision))
    archive.close()
    archive = Archive(tmp_path)
    snapshot = archive.open()
    archive.close()
    assert snapshot is not None
    assert snapshot.revision == record.revision + SKIPPED
    assert snapshot.records == [("b", record)]


# ------------------------------------------------------------------------------------------ restarts


@pytest.mark.parametrize("persistent", [False, True])
async def test_a_restart_keeps_the_address_and_the_data(tmp_path: pathlib.Path, persistent: bool) -> None:
    async with LocalCluster(data_dir=tmp_path if persistent else None) as cluster:
        url, token = cluster.url, cluster.token
        async with connect(cluster) as client:
            cluster.apply(make_definition())
            kex = await client.create(KEXES, make_kex())
            async with client.watch(KEXES) as stream:
                await stream.next()
                await cluster.restart_async()
                with pytest.raises(aiohttp.ClientError):
                    await stream.next()
            assert (cluster.url, cluster.token) == (url, token)
            assert await client.get(f"{KEXES}/one") == kex
            changed = await client.patch(f"{KEXES}/one", {"spec": {"a": 1}})
            assert int(changed["metadata"]["resourceVersion"]) > int(kex["metadata"]["resourceVersion"])


@pytest.mark.parametrize("persistent", [False, True])
async def test_a_restart_without_data_is_a_new_cluster(tmp_path: pathlib.Path, persistent: bool) -> None:
    async with LocalCluster(data_dir=tmp_path if persistent else None) as cluster, connect(cluster) as client:
        for number in range(30):
            old = await client.create(CONFIG_MAPS, make_config_map(f"n{number}"))
        await cluster.restart_async(keep_data=False)
        assert (await client.call("GET", f"{CONFIG_MAPS}/n1")).status == 404
        new = await client.create(CONFIG_MAPS, make_config_map())
        assert int(new["metadata"]["resourceVersion"]) < int(old["metadata"]["resourceVersion"])


async def test_watches_from_before_the_restart_are_told_to_list_anew() -> None:
    async with LocalCluster() as cluster, connect(cluster) as client:
        first = await client.create(CONFIG_MAPS, make_config_map("first"))
        await client.create(CONFIG_MAPS, make_config_map("second"))
        await cluster.restart_async()
        async with client.watch(CONFIG_MAPS, resourceVersion=first["metadata"]["resourceVersion"]) as stream:
            event = await stream.next()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def fetch(cluster: LocalCluster, path: str) -> Any:
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    request = urllib.request.Request(cluster.url + path, headers={"Authorization": f"Bearer {cluster.token}"})
    with urllib.request.urlopen(request, context=context, timeout=PATIENCE) as response:
        return yaml.safe_load(response.read())


@pytest.mark.parametrize("persistent", [False, True])
async def test_what_is_applied_in_the_middle_of_a_restart_is_not_lost(tmp_path: pathlib.Path, persistent: bool) -> None:
    async with LocalCluster(data_dir=tmp_path if persistent else None) as cluster, connect(cluster) as client:
        applied = 0
        restart = asyncio.create_task(cluster.restart_async())
        while not restart.done():
            cluster.apply(make_config_map(f"cm-{applied}"))
            applied += 1
            await asyncio.sleep(0)
        await restart
        listed = (await client.get(CONFIG_MAPS))["items"]
        found = {item["metadata"]["name"] for item in listed}
        assert not {f"cm-{number}" for number in range(applied)} - found
        # Nor is any version given twice.
        assert len({item["metadata"]["resourceVersion"] for item in listed}) == len(listed)


def test_what_is_applied_by_threads_in_the_middle_of_a_restart_is_not_lost() -> None:
    with LocalCluster() as cluster:
        restart = threading.Thread(target=cluster.restart)
        restart.start()
        applied = 0
        while restart.is_alive():
            cluster.apply(make_config_map(f"cm-{applied}"))
            applied += 1
        restart.join()
        found = {item["metadata"]["name"] for item in fetch(cluster, CONFIG_MAPS)["items"]}
        assert not {f"cm-{number}" for number in range(applied)} - found


async def test_connections_that_are_half_open_at_a_restart_are_not_left_with_the_old_server() -> None:
    """It has outdated data, and what it is told is lost."""
    async with LocalCluster() as cluster:
        address, context = yarl.URL(cluster.url), ssl.create_default_context(cadata=cluster.ca_data.decode())
        reader, writer = await asyncio.open_connection(address.host, address.port)
        await cluster.restart_async()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask_later(reader, writer, context, f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_the_end_breaks_connections_that_are_half_open() -> None:
    async with LocalCluster() as cluster:
        address = yarl.URL(cluster.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        async with connect(cluster) as client:
            await client.get("/version")  # by then, the other one is accepted, too
    try:
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert not await reader.read()
    finally:
        writer.close()


async def test_what_is_acknowledged_amid_restarts_is_kept() -> None:
    """However the client is connected, and whatever the connection is at when the server stops."""
    async with LocalCluster(bare=True) as cluster:
        cluster.apply(make_definition())
        url = yaml.safe_load((await cluster.open_plain_port("alice")).read_text())["clusters"][0]["cluster"]["server"]
        token = {"Authorization": f"Bearer {cluster.token}"}
        tls, memory = trust(cluster.ca_data), cluster.open_network()
        ways: list[tuple[str, dict[str, str], Callable[[], aiohttp.BaseConnector]]] = [
            (cluster.url, token, lambda: aiohttp.TCPConnector(ssl=tls)),
            (url, {}, aiohttp.TCPConnector),
            (cluster.url, token, memory.make_connector),
        ]
        is_over, codes = asyncio.Event(), collections.Counter[int]()

        async def change(number: int) -> None:
            base, headers, make_connector = ways[number % len(ways)]
            cluster.apply(make_kex(f"kex-{number}"))
            for value in itertools.count():
                if is_over.is_set():
                    return
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with (
                        aiohttp.ClientSession(connector=make_connector(), headers=headers) as session,
                        session.patch(
                            f"{base}{KEXES}/kex-{number}",
                            json={"spec": {"value": value}},
                            headers={"Content-Type": MERGE},
                        ) as response,
                    ):
                        codes[response.status] += 1
                    assert cluster.get("kex", f"kex-{number}")["spec"] == {"value": value}
                await asyncio.sleep(0)

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(change(number))
            for round_ in range(1, 21):
                while codes.total() < round_ * 5:
                    await asyncio.sleep(0.001)
                await cluster.restart_async()
            is_over.set()
        assert set(codes) == {200}


async def ask_later(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    context: ssl.SSLContext,
    request: str,
) -> bytes:
    """Say hello when the connection is open for long, and send the request; give the first line of the response."""
    try:
        await writer.start_tls(context, server_hostname="127.0.0.1")
        writer.write(request.encode())
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()


async def test_a_cluster_in_a_loop_is_not_restarted_by_blocking_it(cluster: LocalCluster) -> None:
    with pytest.raises(RuntimeError, match="restart_async"):
        cluster.restart()


# ------------------------------------------------------------------------------------------ tokens and clocks


async def test_expired_tokens_are_refused_and_the_kubeconfig_has_a_new_one(
    cluster: LocalCluster, client: Client
) -> None:
    old = cluster.token
    cluster.faults.expire_token()
    assert (await client.call("GET", CONFIG_MAPS)).status == 401
    assert cluster.token != old
    assert yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]["token"] == cluster.token
    async with connect(cluster) as renewed:
        await renewed.get(CONFIG_MAPS)


async def test_open_watches_outlive_the_token(cluster: LocalCluster, client: Client) -> None:
    async with client.watch(CONFIG_MAPS) as stream:
        cluster.faults.expire_token()
        cluster.apply(make_config_map())
        assert await stream.take(1) == [("ADDED", "one")]


def year_of(obj: Any) -> int:
    return int(obj["metadata"]["creationTimestamp"][:4])


async def test_a_moved_clock_is_seen_in_timestamps(cluster: LocalCluster, client: Client) -> None:
    before = await client.create(CONFIG_MAPS, make_config_map("before"))
    cluster.faults.move_clock(2 * 366 * 24 * 3600)
    after = await client.create(CONFIG_MAPS, make_config_map("after"))
    (applied,) = cluster.apply(make_config_map("applied"))
    assert year_of(after) == year_of(applied) == year_of(before) + 2
    cluster.faults.move_clock(-2 * 366 * 24 * 3600)
    assert year_of(await client.create(CONFIG_MAPS, make_config_map("again"))) == year_of(before)


async def test_a_moved_clock_is_seen_in_control_loops_and_ages(cluster: LocalCluster, client: Client) -> None:
    old = await client.create(CONFIG_MAPS, make_config_map("old"))
    cluster.faults.move_clock(2 * 366 * 24 * 3600)
    cluster.apply(make_definition())
    definition = await client.wait(f"{CRDS}/kexes.example.com", lambda obj: obj["status"]["conditions"])
    assert int(definition["status"]["conditions"][0]["lastTransitionTime"][:4]) == year_of(old) + 2
    table = await client.get(CONFIG_MAPS, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    assert table["rows"][0]["cells"][-1].startswith("2y")


async def test_clocks_of_clusters_are_their_own(cluster: LocalCluster, client: Client) -> None:
    async with LocalCluster() as other, connect(other) as other_client:
        other.faults.move_clock(2 * 366 * 24 * 3600)
        mine = await client.create(CONFIG_MAPS, make_config_map())
        theirs = await other_client.create(CONFIG_MAPS, make_config_map())
    assert year_of(theirs) == year_of(mine) + 2


@pytest.mark.parametrize("seconds", [1e12, -1e12, float("nan"), float("inf")])
def test_a_clock_cannot_be_moved_too_far(seconds: float) -> None:
    with pytest.raises(ValueError, match="more than a century"):
        LocalCluster().faults.move_clock(seconds)


async def test_tokens_and_clocks_from_another_process(cluster: LocalCluster, client: Client) -> None:
    assert (await client.call("POST", "/_kopf/clock?seconds=-3600")).status == 200
    assert cluster.faults.clock.offset == -3600
    assert (await client.call("POST", "/_kopf/clock?seconds=soon")).status == 400
    assert (await client.call("POST", "/_kopf/token/expire")).status == 200
    assert (await client.call("GET", CONFIG_MAPS)).status == 401
