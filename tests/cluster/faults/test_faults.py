from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import pytest

from kopf_cluster import FaultRule, LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, Client, connect, make_config_map
from tests.patience import PATIENCE

CONNECT = connect


async def test_answers_by_rules(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.inject(429, verb="list", resource="configmaps", retry_after=7)
    reply = await client.call("GET", CONFIG_MAPS, expected=429)
    assert reply.headers["Retry-After"] == "7"
    assert reply.body["reason"] == "TooManyRequests"
    assert reply.body["details"] == {"retryAfterSeconds": 7}
    assert (await client.call("GET", "/api/v1/secrets")).status == 200
    assert (await client.call("POST", CONFIG_MAPS, json=make_config_map())).status == 201
    assert (await client.call("GET", f"{CONFIG_MAPS}/one")).status == 200
    cluster.faults.clear()
    assert (await client.call("GET", CONFIG_MAPS)).status == 200


@pytest.mark.parametrize(
    "rule",
    [
        {"method": "post"},
        {"path": "/namespaces/[a-z]+/configmaps"},
        {"verb": "create"},
        {"resource": "configmaps"},
        {},
    ],
)
async def test_rules_select_requests(client: Client, cluster: LocalCluster, rule: dict[str, Any]) -> None:
    cluster.faults.inject(503, **rule)
    assert (await client.call("POST", CONFIG_MAPS, json=make_config_map())).status == 503
    cluster.faults.clear()
    assert (await client.call("GET", f"{CONFIG_MAPS}/one")).status == 404


@pytest.mark.parametrize(
    ("rule", "headers", "hit"),
    [
        ({"user": "jane"}, {"Impersonate-User": "jane"}, True),
        ({"user": "jane"}, {"Impersonate-User": "john"}, False),
        ({"user": "jane"}, {}, False),
        ({"user": "kubernetes-admin"}, {}, True),
        ({"agent": "^kopf/"}, {"User-Agent": "kopf/2.0"}, True),
        ({"agent": "^kopf/"}, {"User-Agent": "kubectl/v1.36.2"}, False),
        ({"agent": "^(?!test)"}, {"User-Agent": "test"}, False),
    ],
)
async def test_rules_select_clients(
    client: Client, cluster: LocalCluster, rule: dict[str, Any], headers: dict[str, str], hit: bool
) -> None:
    cluster.faults.inject(503, verb="list", **rule)
    assert (await client.call("GET", CONFIG_MAPS, headers=headers)).status == (503 if hit else 200)


@pytest.mark.parametrize(
    ("resource", "path", "hit"),
    [
        ("deployments", "/apis/apps/v1/deployments", True),
        ("deployments.apps", "/apis/apps/v1/deployments", True),
        ("deployments.example.com", "/apis/apps/v1/deployments", False),
        ("deployments.apps/status", "/apis/apps/v1/namespaces/default/deployments/one/status", True),
        ("deployments.apps", "/apis/apps/v1/namespaces/default/deployments/one/status", False),
        ("configmaps", CONFIG_MAPS, True),
    ],
)
async def test_rules_select_kinds(client: Client, cluster: LocalCluster, resource: str, path: str, hit: bool) -> None:
    cluster.faults.inject(503, resource=resource)
    assert ((await client.call("GET", path)).status == 503) is hit


async def test_the_dice_are_only_for_the_chosen_clients(client: Client, cluster: LocalCluster) -> None:
    """What a test does itself, does not change what happens to others."""
    cluster.faults.inject(500, rate=0.3, times=5, agent="^operator$")

    async def play(others: int) -> list[int]:
        cluster.faults.reseed(5)
        statuses = []
        for _ in range(50):
            statuses.append((await client.call("GET", CONFIG_MAPS, headers={"User-Agent": "operator"})).status)
            assert {(await client.call("GET", CONFIG_MAPS)).status for _ in range(others)} <= {200}
        return statuses

    first = await play(0)
    assert first.count(500) == 5
    cluster.faults.replace([*map(msgspec.structs.replace, cluster.faults.rules)])  # not used yet
    assert await play(3) == first


async def test_refusals_can_be_few(client: Client, cluster: LocalCluster) -> None:
    rule = cluster.faults.inject(500, times=2)
    assert [(await client.call("GET", CONFIG_MAPS)).status for _ in range(4)] == [500, 500, 200, 200]
    cluster.faults.remove(rule)
    assert cluster.faults.rules == ()


@pytest.mark.parametrize(("action", "found"), [("disconnect", 404), ("lose-answer", 200)])
async def test_connections_break_before_or_after_the_request_is_done(
    client: Client, cluster: LocalCluster, action: Any, found: int
) -> None:
    cluster.faults.inject(action=action, times=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.call("POST", CONFIG_MAPS, json=make_config_map())
    assert (await client.call("GET", f"{CONFIG_MAPS}/one")).status == found


@pytest.mark.fastforward
async def test_latency_is_by_the_clock_of_the_loop(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.inject(action="delay", latency=1000)
    loop = asyncio.get_running_loop()
    started, really = loop.time(), time.monotonic()
    assert (await client.call("GET", CONFIG_MAPS)).status == 200
    assert loop.time() - started >= 1000
    assert time.monotonic() - really < PATIENCE


@pytest.mark.parametrize("wrong", [{"rate": 2}, {"status": 200}, {"path": "("}, {"agent": "("}])
def test_wrong_rules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"rate|status|unterminated"):
        FaultRule(**wrong)


async def test_watches_are_cut(client: Client, cluster: LocalCluster) -> None:
    async with client.watch(CONFIG_MAPS) as stream:
        cluster.faults.cut_watches()
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.next()
    async with client.watch(CONFIG_MAPS) as stream:
        cluster.faults.cut_watches(clean=True)
        assert await stream.next() is None


@pytest.mark.fastforward
async def test_watches_are_dropped_periodically(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.drop_watches_every(2)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        started = loop.time()
        async with client.watch(CONFIG_MAPS) as stream:
            with pytest.raises(aiohttp.ClientPayloadError):
                await stream.next()
        assert loop.time() - started < 3.9
    cluster.faults.drop_watches_every(None)
    async with client.watch(CONFIG_MAPS, timeoutSeconds="10") as stream:
        assert await stream.next() is None


async def is_cut(cluster: LocalCluster, agent: str, period: float) -> bool:
    """Whether the watch of such a client is cut in that many seconds."""
    async with connect(cluster) as client:
        headers = {"User-Agent": agent}
        async with client.session.get(f"{CONFIG_MAPS}?watch=1&timeoutSeconds={period:g}", headers=headers) as response:
            try:
                await response.content.readline()
            except aiohttp.ClientPayloadError:
                return True
            return False


@pytest.mark.fastforward
async def test_watches_of_some_clients_are_dropped_periodically(cluster: LocalCluster) -> None:
    cluster.faults.drop_watches_every(2, agent="^kopf/")
    assert await asyncio.gather(*(is_cut(cluster, agent, 10) for agent in ("kopf/2", "kubectl/1"))) == [True, False]
    cluster.faults.drop_watches_every(2, user="jane")
    assert not await is_cut(cluster, "kopf/2", 10)
    cluster.faults.drop_watches_every(2, user="kubernetes-admin", agent="kopf")
    assert await is_cut(cluster, "kopf/2", 10)


@pytest.mark.fastforward
async def test_watches_of_some_clients_are_cut(cluster: LocalCluster) -> None:
    watches = [asyncio.create_task(is_cut(cluster, agent, 10)) for agent in ("kopf/2", "kubectl/1")]
    await asyncio.sleep(5)
    cluster.faults.cut_watches(agent="kopf")
    assert await asyncio.gather(*watches) == [True, False]


@pytest.mark.fastforward
async def test_silent_watches_send_nothing_until_later(client: Client, cluster: LocalCluster) -> None:
    async with client.watch(CONFIG_MAPS) as stream:
        cluster.faults.silence_watches()
        await client.create(CONFIG_MAPS, make_config_map())
        silent = asyncio.create_task(stream.take(1))
        assert not (await asyncio.wait([silent], timeout=600))[0]
        async with client.session.get(f"{CONFIG_MAPS}?watch=1", timeout=aiohttp.ClientTimeout(5)) as response:
            with pytest.raises(TimeoutError):
                await response.content.readline()
        cluster.faults.silence_watches(False)
        assert await silent == [("ADDED", "one")]


@pytest.mark.fastforward
async def test_paused_servers_answer_later(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.pause()
    request = asyncio.create_task(client.call("GET", CONFIG_MAPS))
    assert not (await asyncio.wait([request], timeout=600))[0]
    cluster.faults.resume()
    assert (await request).status == 200


async def test_administration_over_http(client: Client, cluster: LocalCluster) -> None:
    rules = [{"status": 503, "verb": "list", "times": 1}]
    answer = await client.call(
        "PUT",
        "/_kopf/faults",
        json={"rules": rules, "seed": 3, "watch_lifetime": 5.5, "watch_lag": [0.25, 0.5]},
        expected=200,
    )
    assert answer.body["watch_lifetime"] == 5.5
    assert answer.body["watch_lag"] == [0.25, 0.5]
    assert cluster.faults.rules == (FaultRule(status=503, verb="list", times=1),)
    assert (await client.call("GET", CONFIG_MAPS)).status == 503
    assert (await client.call("GET", CONFIG_MAPS)).status == 200
    shown = await client.get("/_kopf/faults")
    assert shown["rules"][0]["status"] == 503
    assert shown["silent"] is shown["paused"] is False
    await client.call("PUT", "/_kopf/faults", json={"paused": True})
    assert (await client.get("/_kopf/faults"))["paused"] is True
    ended = (await client.call("DELETE", "/_kopf/faults")).body
    assert ended == {"rules": [], "watch_lifetime": None, "watch_lag": None, "silent": False, "paused": False}


async def test_faults_of_some_clients_are_set_from_outside(client: Client, cluster: LocalCluster) -> None:
    settings = {
        "watch_lifetime": 5.5,
        "watch_lifetime_of": {"agent": "^kopf/", "user": None},
        "watch_lag": [0.25, 0.5],
        "watch_lag_of": {"user": "jane", "agent": None},
    }
    answer = await client.call("PUT", "/_kopf/faults", json=settings)
    assert answer.body == {"rules": [], "silent": False, "paused": False, **settings}
    answer = await client.call("PUT", "/_kopf/faults", json={"watch_lifetime": 1, "watch_lag": None})
    assert answer.body == {"rules": [], "silent": False, "paused": False, "watch_lifetime": 1, "watch_lag": None}


@pytest.mark.parametrize(
    "settings",
    [
        {"rules": 5},
        {"rules": [{"rate": 7}]},
        {"nosuch": 1},
        {"watch_lifetime": -1},
        {"watch_lag": [1, 0]},
        {"watch_lag": 5},
        {"rules": [{"agent": "("}]},
        {"rules": [{"path": "["}]},
        {"watch_lag": [0, 1], "watch_lag_of": {"agent": "("}},
        {"frozen": [{"agent": "("}]},
        {"partitioned": {"user": "jane"}},
    ],
)
async def test_wrong_administration_is_bad(client: Client, settings: dict[str, Any]) -> None:
    assert (await client.call("PUT", "/_kopf/faults", json=settings)).status == 400
    assert (await client.call("GET", "/_kopf/nosuch")).status == 404


async def test_watches_and_history_over_http(client: Client) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await client.create(CONFIG_MAPS, make_config_map())
    async with client.watch(CONFIG_MAPS) as stream:
        assert await stream.take(1) == [("ADDED", "one")]
        assert (await client.call("POST", "/_kopf/watches/cut?clean=1")).status == 200
        assert await stream.next() is None
    assert (await client.call("POST", "/_kopf/compact")).status == 200
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        event = await stream.next()
        assert event["type"] == "ERROR"


async def test_requests_are_counted(client: Client, cluster: LocalCluster) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    await client.call("POST", CONFIG_MAPS, json=make_config_map())
    await client.get(CONFIG_MAPS)
    await client.get("/version")
    async with client.watch(CONFIG_MAPS):
        pass
    expected = {
        ("create", "configmaps", 201): 1,
        ("create", "configmaps", 409): 1,
        ("list", "configmaps", 200): 1,
        ("watch", "configmaps", 200): 1,
        ("get", "", 200): 1,
    }
    assert cluster.counters == expected
    counted = await client.get("/_kopf/counters")
    assert counted["total"] == 5
    assert {(item["verb"], item["resource"], item["code"]): item["count"] for item in counted["requests"]} == expected
    await client.call("DELETE", "/_kopf/counters")
    assert cluster.counters == {}
    await client.get(CONFIG_MAPS)
    cluster.reset_counters()
    assert cluster.counters == {}


def test_faults_from_another_thread() -> None:
    async def attempt(cluster: LocalCluster) -> None:
        async with connect(cluster) as client, client.watch(CONFIG_MAPS) as stream:
            await asyncio.to_thread(cluster.faults.cut_watches, clean=True)
            assert await stream.next() is None
            cluster.faults.inject(500, times=1)
            assert (await client.call("GET", CONFIG_MAPS)).status == 500
            version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
            await client.create(CONFIG_MAPS, make_config_map())
            cluster.faults.compact()
            async with client.watch(CONFIG_MAPS, resourceVersion=version) as expired:
                event = await expired.next()
                assert event["type"] == "ERROR"
        # The loop ends here, but TLS connections need some time to say goodbye: see "Graceful shutdown" of aiohttp.
        await asyncio.sleep(0.25)

    with LocalCluster(bare=True) as cluster:
        asyncio.run(attempt(cluster))


@pytest.mark.parametrize(("query", "status"), [("", 200), ("?keep_data=0", 404)])
async def test_the_server_is_restarted_from_outside(
    client: Client,
    cluster: LocalCluster,
    query: str,
    status: int,
) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    async with client.watch(CONFIG_MAPS) as stream:
        await stream.next()
        assert (await client.call("POST", f"/_kopf/restart{query}")).status == 200
        with pytest.raises(aiohttp.ClientError):
            await stream.next()
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                reply = await client.call("GET", f"{CONFIG_MAPS}/one")
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)
    assert reply.status == status
    await client.call("PATCH", f"{CONFIG_MAPS}/one", json={})


def test_restarts_can_be_asked_for_by_threads() -> None:
    with LocalCluster(bare=True) as cluster:
        cluster.faults.restart(keep_data=False)
