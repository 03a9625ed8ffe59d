"""One client of several is frozen, or cut off, and healed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
import ssl

import aiohttp
import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, Client, connect, make_config_map

CONNECT = connect
JANE, JOHN = {"Impersonate-User": "jane"}, {"Impersonate-User": "john"}


async def watch_as(client: Client, headers: dict[str, str]) -> list[str]:
    """Watch until the end; give the names of what has come."""
    lines: list[bytes] = []
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        async with client.session.get(CONFIG_MAPS, params={"watch": "1"}, headers=headers) as response:
            async for line in response.content:
                lines += [line]
    return [json.loads(line)["object"]["metadata"]["name"] for line in lines]


@pytest.mark.fastforward
async def test_one_client_is_frozen(client: Client, cluster: LocalCluster) -> None:
    watches = [asyncio.create_task(watch_as(client, headers)) for headers in (JANE, JOHN)]
    await asyncio.sleep(1)
    cluster.faults.freeze(user="jane")
    request = asyncio.create_task(client.call("POST", CONFIG_MAPS, 201, json=make_config_map("janes"), headers=JANE))
    assert not (await asyncio.wait([request], timeout=600))[0]
    await client.call("POST", CONFIG_MAPS, 201, json=make_config_map("johns"), headers=JOHN)
    assert [item["metadata"]["name"] for item in (await client.get(CONFIG_MAPS))["items"]] == ["johns"]
    cluster.faults.heal(user="john")
    assert not request.done()
    cluster.faults.heal(user="jane")
    await request
    await asyncio.sleep(1)
    cluster.faults.cut_watches()
    assert await asyncio.gather(*watches) == [["johns", "janes"], ["johns", "janes"]]


@pytest.mark.fastforward
async def test_frozen_clients_that_give_up_have_done_nothing(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.freeze(user="jane")
    with pytest.raises(TimeoutError):
        await client.call(
            "POST", CONFIG_MAPS, json=make_config_map(), headers=JANE, timeout=aiohttp.ClientTimeout(total=10)
        )
    await asyncio.sleep(1)
    cluster.faults.heal()
    await asyncio.sleep(1)
    assert (await client.get(CONFIG_MAPS))["items"] == []


@pytest.mark.fastforward
async def test_one_client_is_partitioned(client: Client, cluster: LocalCluster) -> None:
    watches = [asyncio.create_task(watch_as(client, headers)) for headers in (JANE, JOHN)]
    await asyncio.sleep(1)
    cluster.faults.partition(user="jane")
    assert await watches[0] == []
    for path in (CONFIG_MAPS, "/version"):
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.call("GET", path, headers=JANE)
    await client.call("POST", CONFIG_MAPS, 201, json=make_config_map("johns"), headers=JOHN)
    cluster.faults.heal(user="jane")
    assert (await client.call("GET", CONFIG_MAPS, headers=JANE)).status == 200
    cluster.faults.cut_watches()
    assert await watches[1] == ["johns"]


@pytest.mark.fastforward
async def test_requests_underway_meet_the_partition(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.inject(action="delay", latency=5, user="jane")
    request = asyncio.create_task(client.call("POST", CONFIG_MAPS, json=make_config_map(), headers=JANE))
    await asyncio.sleep(1)
    cluster.faults.partition(user="jane")
    with pytest.raises(aiohttp.ClientConnectionError):
        await request
    assert (await client.get(CONFIG_MAPS))["items"] == []


async def test_clients_are_told_apart_by_certificates(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """As real processes are that have kubeconfigs of their own; they are isolated from outside, too."""
    sessions = []
    for user in ("web-0", "web-1"):
        cluster.write_kubeconfig(tmp_path / user, user)
        (entry,) = yaml.safe_load((tmp_path / user).read_text())["users"]
        for key in ("client-certificate-data", "client-key-data"):
            (tmp_path / f"{user}.{key}").write_bytes(base64.b64decode(entry["user"][key]))
        context = ssl.create_default_context(cadata=cluster.ca_data.decode())
        cert, private = (tmp_path / f"{user}.client-{part}-data" for part in ("certificate", "key"))
        context.load_cert_chain(cert, private)
        sessions.append(aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=context)))
    async with connect(cluster) as admin, sessions[0] as first, sessions[1] as second:
        settings = {"partitioned": [{"user": "web-0"}], "frozen": [{"agent": "^slow/"}]}
        described = (await admin.call("PUT", "/_kopf/faults", 200, json=settings)).body
        assert described["partitioned"] == [{"user": "web-0", "agent": None}]
        assert described["frozen"] == [{"user": None, "agent": "^slow/"}]
        with pytest.raises(aiohttp.ClientConnectionError):
            await first.get(CONFIG_MAPS)
        assert (await second.get(CONFIG_MAPS)).status == 200
        await admin.call("PUT", "/_kopf/faults", 200, json={"partitioned": []})
        assert (await first.get(CONFIG_MAPS)).status == 200
        assert cluster.faults.frozen
        assert "frozen" not in (await admin.call("DELETE", "/_kopf/faults")).body
