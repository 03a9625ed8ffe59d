"""The short way to the server: it comes out the same as by connections, also when it is slowed down, broken, cut."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yarl

from kopf_cluster import LocalCluster
from kopf_cluster.http.memory import MemoryNetwork
from kopf_cluster.http.shortcuts import ShortcutSession, ShortResponse
from tests.cluster.conftest import CONFIG_MAPS

BODY = b'{"metadata": {"name": "one"}}'


class Client:
    """Asks for paths by a session with a shortcut."""

    def __init__(self, url: str, session: ShortcutSession) -> None:
        self.session = session
        self._url = url

    async def ask(self, method: str, path: str, **options: Any) -> tuple[bool, int, bytes]:
        """Tell whether it was the short way, the code of the answer, and the answer."""
        async with self.session.request(method, yarl.URL(self._url + path), **options) as response:
            return isinstance(response, ShortResponse), response.status, await response.read()


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        cluster.add_token("token", "someone", ["system:masters"])
        yield cluster


@pytest.fixture
def network(cluster: LocalCluster) -> MemoryNetwork:
    return cluster.open_network()


@pytest.fixture
async def client(cluster: LocalCluster, network: MemoryNetwork) -> AsyncIterator[Client]:
    headers = {"Authorization": "Bearer token"}
    async with aiohttp.ClientSession(connector=network.make_connector(), headers=headers) as session:
        yield Client(cluster.url, network.shorten(session))


async def test_usual_requests_go_the_short_way(cluster: LocalCluster, client: Client) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "tester/1"}
    assert (await client.ask("POST", CONFIG_MAPS, data=BODY, headers=headers))[:2] == (True, 201)
    assert (await client.ask("GET", f"{CONFIG_MAPS}/one"))[:2] == (True, 200)
    assert (await client.ask("GET", f"{CONFIG_MAPS}/two"))[:2] == (True, 404)
    assert (await client.ask("GET", f"{CONFIG_MAPS}/one", headers={"Authorization": "Bearer other"}))[:2] == (True, 401)
    assert cluster.counters["create", "configmaps", 201] == 1
    record = next(record for record in cluster.audit if record.verb == "create")
    assert (record.user, record.agent, record.name) == ("someone", "tester/1", "one")


async def test_streams_have_connections(client: Client) -> None:
    limit = aiohttp.ClientTimeout(total=0.1)
    with pytest.raises(TimeoutError):
        await client.ask("GET", f"{CONFIG_MAPS}?watch=true", timeout=limit)


async def test_bodies_are_refused_alike(client: Client) -> None:
    headers = {"Content-Type": "application/json"}
    is_short, code, content = await client.ask("POST", CONFIG_MAPS, data=b"{", headers=headers)
    connected = await client.ask("POST", CONFIG_MAPS, data=io.BytesIO(b"{"), headers=headers)
    assert is_short
    assert code == 400
    assert connected == (False, code, content)


async def test_connections_are_broken(cluster: LocalCluster, client: Client) -> None:
    cluster.faults.inject(action="lose-answer", verb="create")
    with pytest.raises(aiohttp.ClientOSError):
        await client.ask("POST", CONFIG_MAPS, data=BODY)
    assert await cluster.aio.get("cm", "one")


@pytest.mark.fastforward
async def test_requests_are_slow_and_clients_are_impatient(cluster: LocalCluster, client: Client) -> None:
    cluster.faults.inject(action="delay", latency=0.05, verb="create")
    with pytest.raises(TimeoutError):
        await client.ask("POST", CONFIG_MAPS, data=BODY, timeout=aiohttp.ClientTimeout(total=0.01))
    await asyncio.sleep(0.1)
    assert ("create", "configmaps", 201) not in cluster.counters  # nothing is done for those who have gone
    assert (await client.ask("POST", CONFIG_MAPS, data=BODY))[:2] == (True, 201)


async def test_what_begins_behind_a_cut_has_a_connection(network: MemoryNetwork, client: Client) -> None:
    network.cut()
    asking = asyncio.create_task(client.ask("GET", "/version"))
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done
    network.mend()
    assert (await asking)[:2] == (False, 200)


async def test_answers_wait_behind_a_cut(cluster: LocalCluster, network: MemoryNetwork, client: Client) -> None:
    asking = asyncio.create_task(client.ask("POST", CONFIG_MAPS, data=BODY))
    while ("create", "configmaps", 201) not in cluster.counters:
        await asyncio.sleep(0)
    network.cut()
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done
    network.mend()
    assert (await asking)[:2] == (True, 201)


async def test_the_dead_hear_nothing(cluster: LocalCluster, network: MemoryNetwork, client: Client) -> None:
    asking = asyncio.create_task(client.ask("POST", CONFIG_MAPS, data=BODY))
    while ("create", "configmaps", 201) not in cluster.counters:
        await asyncio.sleep(0)
    network.sever()
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done  # it is done, but nobody gets to know that
    asking.cancel()
    await asyncio.wait([asking])
    assert await cluster.aio.get("cm", "one")


async def test_the_server_stops_amid_a_request(cluster: LocalCluster, client: Client) -> None:
    cluster.faults.inject(action="delay", latency=3600, verb="list")
    seen: list[Any] = []
    cluster.faults.advisers.append(lambda call, request: seen.append(call))
    asking = asyncio.create_task(client.ask("GET", CONFIG_MAPS))
    while not seen:
        await asyncio.sleep(0)
    await cluster.restart_async()
    with pytest.raises(aiohttp.ClientOSError):
        await asking
