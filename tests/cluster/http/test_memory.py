"""Connections in memory: as those by the network, they are slowed down, broken, cut, and mended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.http.memory import MemoryNetwork
from tests.cluster.conftest import CONFIG_MAPS


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        cluster.add_token("token", "someone", ["system:masters"])
        yield cluster


@pytest.fixture
def network(cluster: LocalCluster) -> MemoryNetwork:
    return cluster.open_network()


@pytest.fixture
async def session(cluster: LocalCluster, network: MemoryNetwork) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": "Bearer token"}
    async with aiohttp.ClientSession(cluster.url, connector=network.make_connector(), headers=headers) as session:
        yield session


def make(name: str, size: int = 1) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * size}}


async def test_big_bodies(session: aiohttp.ClientSession) -> None:
    """They are more than what may be underway: whoever sends, is asked to wait."""
    size = 900_000
    for n in range(4):
        async with session.post(CONFIG_MAPS, json=make(f"obj{n}", size)) as response:
            assert response.status == 201
    async with session.get(CONFIG_MAPS) as response:
        await asyncio.sleep(0.05)  # nobody reads meanwhile
        items = (await response.json())["items"]
    assert [len(item["data"]["text"]) for item in items if item["metadata"]["name"].startswith("obj")] == [size] * 4


async def test_streams_are_broken_or_ended(cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
    for clean in (False, True):
        async with session.get(CONFIG_MAPS, params={"watch": "true"}) as response:
            await response.content.readline()
            cluster.faults.cut_watches(clean=clean)
            with contextlib.nullcontext() if clean else pytest.raises(aiohttp.ClientPayloadError):
                assert await response.content.read() == b""


async def test_connections_are_refused_after_the_end() -> None:
    async with LocalCluster() as cluster:
        network, url = cluster.open_network(), cluster.url
    async with aiohttp.ClientSession(url, connector=network.make_connector()) as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get("/version")


async def test_cut_and_mend(network: MemoryNetwork, session: aiohttp.ClientSession) -> None:
    async with session.get("/version"):
        pass
    network.cut()
    assert network.is_cut
    old, new = (asyncio.create_task(session.get("/version").__aenter__()) for _ in range(2))
    done, pending = await asyncio.wait([old, new], timeout=0.05)
    assert not done
    network.mend()
    for response in await asyncio.gather(*pending):
        assert response.status == 200
        response.release()


async def test_time_limits_behind_a_cut(network: MemoryNetwork, session: aiohttp.ClientSession) -> None:
    network.cut()
    with pytest.raises(aiohttp.ConnectionTimeoutError):
        await session.get("/version", timeout=aiohttp.ClientTimeout(sock_connect=0.05))
    network.mend()
    async with session.get("/version") as response:
        assert response.status == 200


async def test_the_dead_hear_nothing(
    cluster: LocalCluster, network: MemoryNetwork, session: aiohttp.ClientSession
) -> None:
    async with session.get("/version"):
        pass
    sending = asyncio.create_task(session.post(CONFIG_MAPS, json=make("one")).__aenter__())
    while ("create", "configmaps", 201) not in cluster.counters:
        await asyncio.sleep(0)
    network.sever()
    done, _ = await asyncio.wait([sending], timeout=0.05)
    assert not done  # it is done, but nobody gets to know that
    sending.cancel()
    assert await cluster.aio.get("cm", "one")
    connecting = asyncio.create_task(session.get("/version").__aenter__())
    done, _ = await asyncio.wait([connecting], timeout=0.05)
    assert not done
    connecting.cancel()
    await asyncio.wait([sending, connecting])


async def test_others_are_not_affected(cluster: LocalCluster, network: MemoryNetwork) -> None:
    network.cut()
    network.sever()
    other = cluster.open_network()
    async with (
        aiohttp.ClientSession(cluster.url, connector=other.make_connector()) as session,
        session.get("/version") as response,
    ):
        assert response.status == 200
