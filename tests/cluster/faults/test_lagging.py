"""Late events: after the answer, in order, and each stream on its own; and conflicts of guarded writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, JSON, MERGE, Client, Obj, Stream, connect, make_config_map

CONNECT = connect

pytestmark = pytest.mark.fastforward


def now() -> float:
    return asyncio.get_running_loop().time()


async def arrivals(stream: Stream, count: int) -> list[tuple[float, str]]:
    """Give the times and the versions of the next so many events."""
    found = []
    for _ in range(count):
        event = await stream.next()
        found.append((now(), event["object"]["metadata"]["resourceVersion"]))
    return found


async def write_some(client: Client, count: int) -> list[tuple[float, str]]:
    """Write so many times, one after another; give the times of the answers and the versions."""
    found = []
    for index in range(count):
        obj = await client.create(CONFIG_MAPS, make_config_map(f"cm-{index}"))
        found.append((now(), obj["metadata"]["resourceVersion"]))
        await asyncio.sleep(0.05)
    return found


async def test_events_are_late_by_a_fixed_time(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.lag_watches(100)
    async with client.watch(CONFIG_MAPS) as stream:
        reading = asyncio.create_task(arrivals(stream, 10))
        written = await write_some(client, 10)
        listed = await client.get(CONFIG_MAPS)
        assert len(listed["items"]) == 10  # the reads are not late
        assert not reading.done()
        seen = await reading
    assert [version for _, version in seen] == [version for _, version in written]
    lags = [seen_at - written_at for (seen_at, _), (written_at, _) in zip(seen, written, strict=True)]
    assert all(99.9 <= lag <= 100.5 for lag in lags), lags  # not one after another: each counts from its write


async def test_events_are_late_for_some_clients_only(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.lag_watches(100, agent="^kopf/")
    lags = {}
    async with contextlib.AsyncExitStack() as stack:
        streams = {
            agent: Stream(
                await stack.enter_async_context(
                    client.session.get(CONFIG_MAPS, params={"watch": "1"}, headers={"User-Agent": agent})
                )
            )
            for agent in ("kopf/2", "kubectl/1")
        }
        [(written_at, _)] = await write_some(client, 1)
        for agent in ("kubectl/1", "kopf/2"):
            [(seen_at, _)] = await arrivals(streams[agent], 1)
            lags[agent] = seen_at - written_at
    assert lags["kubectl/1"] < 1
    assert 99.9 <= lags["kopf/2"] <= 100.5


async def test_events_are_late_by_random_times_in_order(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.lag_watches(0, up_to=0.5)
    async with client.watch(CONFIG_MAPS) as stream:
        reading = asyncio.create_task(arrivals(stream, 30))
        written = await write_some(client, 30)
        seen = await reading
    assert [version for _, version in seen] == [version for _, version in written]
    lags = [seen_at - written_at for (seen_at, _), (written_at, _) in zip(seen, written, strict=True)]
    assert all(-0.01 <= lag <= 0.6 for lag in lags), lags
    assert max(lags) - min(lags) > 0.1


async def test_streams_are_late_independently_and_replayably(client: Client, cluster: LocalCluster) -> None:
    async def play(name: str) -> list[int]:
        cluster.faults.reseed(7)
        async with client.watch(CONFIG_MAPS) as first, client.watch(CONFIG_MAPS) as second:
            await asyncio.gather(skip_until_quiet(first), skip_until_quiet(second))
            cluster.faults.lag_watches(0, up_to=1000)  # so wide that the speed of the machine does not matter
            started = now()
            await client.create(CONFIG_MAPS, make_config_map(name))
            both = await asyncio.gather(arrivals(first, 1), arrivals(second, 1))
        cluster.faults.clear()
        return [round(times[0][0] - started) for times in both]

    lags = await play("one")
    assert abs(lags[0] - lags[1]) > 10
    assert all(abs(lag - again) <= 1 for lag, again in zip(lags, await play("two"), strict=True))


async def skip_until_quiet(stream: Stream) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            while await stream.next() is not None:
                pass


async def test_watches_go_on_from_lists_with_nothing_lost(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.lag_watches(0, up_to=0.5)
    await write_some(client, 5)
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    for index in range(5):
        await client.create(CONFIG_MAPS, make_config_map(f"late-{index}"))
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        assert await stream.take(5) == [("ADDED", f"late-{index}") for index in range(5)]


async def test_bookmarks_and_ends_never_overtake_events() -> None:
    async with LocalCluster(bare=True, bookmark_interval=0.2) as cluster, connect(cluster) as client:
        cluster.faults.lag_watches(0, up_to=2)
        version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
        params = {"allowWatchBookmarks": "1", "timeoutSeconds": "5", "resourceVersion": version}
        async with client.watch(CONFIG_MAPS, **params) as stream:
            writing = asyncio.create_task(write_some(client, 50))
            events = [event async for event in rest_of(stream)]
            await writing
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert [event["type"] for event in events].count("ADDED") == 50
    assert [event["type"] for event in events].count("BOOKMARK") > 5
    assert events[-1]["type"] == "BOOKMARK"


async def rest_of(stream: Stream) -> AsyncIterator[Obj]:
    while (event := await stream.next()) is not None:
        yield event


async def test_streamed_lists_are_whole(client: Client, cluster: LocalCluster) -> None:
    await write_some(client, 3)
    cluster.faults.lag_watches(10)
    params = {"sendInitialEvents": "1", "allowWatchBookmarks": "1", "resourceVersionMatch": "NotOlderThan"}
    async with client.watch(CONFIG_MAPS, **params) as stream:
        await client.create(CONFIG_MAPS, make_config_map("later"))
        events = [await stream.next() for _ in range(5)]
    assert [event["type"] for event in events if event] == ["ADDED", "ADDED", "ADDED", "BOOKMARK", "ADDED"]


async def test_what_is_held_is_sent_when_the_lag_ends(client: Client, cluster: LocalCluster) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        cluster.faults.lag_watches(1_000_000)
        started = now()
        await write_some(client, 3)
        cluster.faults.lag_watches(None)
        await client.create(CONFIG_MAPS, make_config_map("last"))
        assert [name for _, name in await stream.take(4)] == ["cm-0", "cm-1", "cm-2", "last"]
        assert now() - started < 1000


async def test_silence_holds_late_events_too(client: Client, cluster: LocalCluster) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        cluster.faults.lag_watches(10)
        await client.create(CONFIG_MAPS, make_config_map())
        cluster.faults.silence_watches()
        reading = asyncio.create_task(stream.take(1))
        assert not (await asyncio.wait([reading], timeout=600))[0]
        cluster.faults.silence_watches(False)
        assert await reading == [("ADDED", "one")]


@pytest.mark.parametrize("clean", [True, False])
async def test_cut_streams_lose_what_is_held_but_can_go_on(client: Client, cluster: LocalCluster, clean: bool) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    cluster.faults.lag_watches(10)
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        await client.create(CONFIG_MAPS, make_config_map())
        await asyncio.sleep(1)
        cluster.faults.cut_watches(clean=clean)
        try:
            assert await stream.next() is None
        except aiohttp.ClientPayloadError:
            assert not clean
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        assert await stream.take(1) == [("ADDED", "one")]


async def test_clients_may_leave_while_events_are_held(client: Client, cluster: LocalCluster) -> None:
    cluster.faults.lag_watches(10)
    async with client.watch(CONFIG_MAPS):
        await client.create(CONFIG_MAPS, make_config_map())
    await asyncio.sleep(100)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "late events of the local cluster"]


def test_the_lag_is_set_from_other_threads() -> None:
    async def attempt(cluster: LocalCluster) -> None:
        async with connect(cluster) as client:
            version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
            async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
                await client.call("PUT", "/_kopf/faults", json={"watch_lag": [600, 600]})
                await client.create(CONFIG_MAPS, make_config_map())
                await client.call("PUT", "/_kopf/faults", json={"watch_lag": None})
                assert await stream.take(1) == [("ADDED", "one")]
                cluster.faults.lag_watches(0.1)
                started = time.monotonic()
                await client.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "b"}})
                assert await stream.take(1) == [("MODIFIED", "one")]
                assert time.monotonic() - started >= 0.1
                cluster.faults.cut_watches(clean=True)
                assert await stream.next() is None

    with LocalCluster(bare=True) as cluster:
        asyncio.run(attempt(cluster))


@pytest.mark.parametrize("lags", [(-1, None), (1, 0.5), (float("inf"), None), (float("nan"), None), (None, 1)])
async def test_wrong_lags_are_refused(cluster: LocalCluster, lags: tuple[float | None, float | None]) -> None:
    with pytest.raises(ValueError, match="lag"):
        cluster.faults.lag_watches(*lags)
    assert cluster.faults.watch_lag is None


GUARDED: list[tuple[str, str, Any]] = [
    ("PUT", "application/json", make_config_map(metadata={"resourceVersion": "VERSION"})),
    ("PUT", "application/yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, resourceVersion: 'VERSION'}}"),
    ("PATCH", MERGE, {"metadata": {"resourceVersion": "VERSION"}, "data": {"a": "b"}}),
    (
        "PATCH",
        JSON,
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "VERSION"},
            {"op": "add", "path": "/data", "value": {"a": "b"}},
        ],
    ),
    ("DELETE", "application/json", {"preconditions": {"resourceVersion": "VERSION"}}),
]


@pytest.mark.parametrize(("method", "content_type", "body"), GUARDED)
async def test_guarded_writes_are_refused_late(
    client: Client,
    cluster: LocalCluster,
    method: str,
    content_type: str,
    body: Any,
) -> None:
    version = (await client.create(CONFIG_MAPS, make_config_map()))["metadata"]["resourceVersion"]
    text = (body if isinstance(body, str) else json.dumps(body)).replace("VERSION", version)

    async def write() -> int:
        headers = {"Content-Type": content_type}
        return (await client.call(method, f"{CONFIG_MAPS}/one", data=text, headers=headers)).status

    cluster.faults.inject(409, guarded=True, latency=30, times=1)
    started = now()
    assert await write() == 409
    assert now() - started >= 30
    assert (await client.get(f"{CONFIG_MAPS}/one"))["metadata"]["resourceVersion"] == version
    assert await write() == 200


@pytest.mark.parametrize(
    ("method", "content_type", "body"),
    [
        ("PUT", "application/json", make_config_map()),
        ("PATCH", MERGE, {"metadata": {"labels": {"a": "b"}}}),
        ("PATCH", MERGE, {"metadata": None}),
        ("PATCH", JSON, [{"op": "add", "path": "/data", "value": {"a": "b"}}]),
        ("DELETE", "application/json", {"preconditions": {"uid": None}}),
        ("DELETE", "application/json", None),
        ("GET", "application/json", None),
    ],
)
async def test_other_requests_are_not_guarded(
    client: Client,
    cluster: LocalCluster,
    method: str,
    content_type: str,
    body: Any,
) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    cluster.faults.inject(409, guarded=True)
    data, headers = None if body is None else json.dumps(body), {"Content-Type": content_type}
    assert (await client.call(method, f"{CONFIG_MAPS}/one", data=data, headers=headers)).status < 409
    cluster.faults.clear()
    cluster.faults.inject(503, guarded=False)
    assert (await client.call(method, f"{CONFIG_MAPS}/one", data=data, headers=headers)).status == 503
    headers = {"Content-Type": MERGE}
    for text, status in {'{"metadata":{"resourceVersion":"1"}}': 404, '{"metadata":{"resour\\x00: [': 503}.items():
        assert (await client.call("PATCH", f"{CONFIG_MAPS}/two", data=text, headers=headers)).status == status
