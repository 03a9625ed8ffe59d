"""Replicas that receive their objects only, where the server can select them by shards; and where it cannot."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf._values.slots import ALL_SLOTS, get_slot, make_shard_selector
from kopf_cluster import LocalCluster
from kopf_cluster.requests import Request
from tests.behaviour.connecting import connect_in_memory
from tests.behaviour.objects import Objects
from tests.behaviour.replicas import Replica, running
from tests.behaviour.resources import make_crd
from tests.behaviour.running import Calls

pytestmark = pytest.mark.fastforward

KEX = "kopfexamples"
HALF = frozenset(range(128))
NAMES = [f"obj{number}" for number in range(20)]


@pytest.fixture(params=[True, False], ids=["selected", "ignored"])
async def cluster(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, shared_certificates: None
) -> AsyncIterator[LocalCluster]:
    """Such clusters as of all tests, with and without the feature."""
    gates = {"ShardedListAndWatch": request.param}
    seed = zlib.crc32(request.node.name.encode())
    async with LocalCluster(seed=seed, bare=True, feature_gates=gates) as cluster:
        connect_in_memory(cluster, monkeypatch)
        cluster.apply(make_crd("KopfExample", KEX, status=False))
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


def declare_for(calls: Calls, *, whole: bool = False) -> Any:
    def declare(replica: Replica) -> None:
        if whole:
            kopf.index(KEX, registry=replica.registry)(lambda name, **_: {name: 1})

        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(name: str, uid: str, reason: str, **_: Any) -> None:
            assert get_slot(uid) in replica.share.slots
            calls.append((name, str(reason)))

    return declare


@pytest.mark.parametrize("whole", [False, True])
async def test_each_is_handled_once(
    cluster: LocalCluster, kex: Objects, calls: Calls, caplog: pytest.LogCaptureFixture, *, whole: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with running(declare_for(calls, whole=whole), "a", "b") as [a, b]:
        a.take(ALL_SLOTS)
        await kex.create_all(NAMES[:10])
        await kex.wait_all_handled(NAMES[:10])
        await a.move(b, ALL_SLOTS - HALF)
        await asyncio.sleep(120)
        await kex.create_all(NAMES[10:])
        await kex.wait_all_handled(NAMES)
        for name in NAMES:
            await kex.change_and_wait(name, field="changed")
        await b.move(a, ALL_SLOTS - HALF)
        await asyncio.sleep(120)
        for name in NAMES:
            await kex.change_and_wait(name, field="again")
        counts = Counter(calls.items)
        assert {counts[name, "create"] for name in NAMES} == {1}
        assert {counts[name, "update"] for name in NAMES} == {2}
        moved = {name for name in NAMES if get_slot((await kex.get(name))["metadata"]["uid"]) not in HALF}
        assert {name for name, reason in counts if reason == "resume"} == moved
    is_ignored = "does not select kopfexamples.v1.kopf.dev by shards" in caplog.text
    for replica in (a, b):
        selectors = [params.get("shardSelector") for path, params in replica.watches if path.endswith(KEX)]
        if whole or is_ignored:
            assert selectors[-1] is None
        elif replica is a:
            assert selectors[-3:] == [None, make_shard_selector(HALF), None]
        else:
            assert selectors == [make_shard_selector(ALL_SLOTS - HALF)]


@pytest.mark.parametrize("cluster", [True], indirect=True)
async def test_what_is_lost_is_not_received_anymore(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """Nothing is listed for that: the stream goes on from where it was."""
    async with running(declare_for(calls), "a") as [a]:
        a.take(HALF)
        await kex.create_all(NAMES)
        await asyncio.sleep(120)
        count = cluster.counters["list", KEX, 200]
        await a.leave(frozenset(range(64)))
        await asyncio.sleep(120)
        path, params = a.watches[-1]
        assert (path, params["shardSelector"]) == (f"/apis/kopf.dev/v1/{KEX}", make_shard_selector(range(64, 128)))
        calls.items.clear()
        for name in NAMES:
            await kex.merge({"spec": {"field": "changed"}}, name)
        await asyncio.sleep(120)
        ours = {name for name in NAMES if 64 <= get_slot((await kex.get(name))["metadata"]["uid"]) < 128}
        assert {name for name, _ in calls} == ours
        assert len(calls) == len(ours)
        assert cluster.counters["list", KEX, 200] == count


async def test_a_gain_right_after_a_loss(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """The stream was about to go on from where it was: it is listed anew instead."""
    async with running(declare_for(calls), "a") as [a]:
        a.take(HALF)
        await kex.create_all(NAMES)
        await asyncio.sleep(120)
        await a.leave(frozenset(range(64)))
        a.take(frozenset(range(64)))
        await asyncio.sleep(120)
        ours = {name for name in NAMES if get_slot((await kex.get(name))["metadata"]["uid"]) < 128}
        again = {name for name in NAMES if get_slot((await kex.get(name))["metadata"]["uid"]) < 64}
        assert Counter(calls.items) == Counter(
            [*((name, "create") for name in ours), *((name, "resume") for name in again)]
        )


@pytest.mark.parametrize("cluster", [True], indirect=True)
async def test_the_users_own_shards_are_respected(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    selector = make_shard_selector(ALL_SLOTS - HALF)

    def declare(replica: Replica) -> None:
        replica.settings.watching.shard_selectors = {f"{KEX}.kopf.dev": selector}
        declare_for(calls)(replica)

    async with running(declare, "a") as [a]:
        a.take(frozenset(range(64, 192)))
        await kex.create_all(NAMES)
        await asyncio.sleep(120)
        assert {params.get("shardSelector") for path, params in a.watches if path.endswith(KEX)} == {selector}
        ours = {name for name in NAMES if 128 <= get_slot((await kex.get(name))["metadata"]["uid"]) < 192}
        assert {name for name, _ in calls} == ours


class Listings:
    """
    The shard selectors of all listings, by kinds: that of each first page, or ``None``.

    The server does not know them for the ``ignorant`` kind, as an old extension behind a new server.
    """

    def __init__(self, cluster: LocalCluster, ignorant: str = "") -> None:
        self.selectors: dict[str, list[str | None]] = {}
        self._ignorant = ignorant
        cluster.faults.advisers.append(self._look)

    def _look(self, call: Any, request: Request) -> None:
        kind = request.path[-1]
        if request.method == "GET" and "watch" not in request.query and "continue" not in request.query:
            self.selectors.setdefault(kind, []).append(request.query.get("shardSelector"))
        if kind == self._ignorant:
            assert isinstance(request.query, dict)
            request.query.pop("shardSelector", None)


async def test_the_server_is_asked_once_before_the_first_listing(
    cluster: LocalCluster, kex: Objects, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a part nor the whole is read in vain; nothing is asked by a replica that has everything."""
    caplog.set_level(logging.INFO)
    await kex.create_all(NAMES)
    listings = Listings(cluster)
    async with running(declare_for(calls), "a") as [a]:
        a.take(ALL_SLOTS)
        await asyncio.sleep(120)
        assert listings.selectors.pop(KEX) == [None]
    async with running(declare_for(calls), "b") as [b]:
        for first in range(0, 128, 32):
            b.take(frozenset(range(first, first + 32)))
            await asyncio.sleep(120)
        parts = [make_shard_selector(range(end)) for end in range(32, 129, 32)]
        is_ignored = "does not select kopfexamples.v1.kopf.dev by shards" in caplog.text
        assert listings.selectors[KEX] == ["none", *(None if is_ignored else part for part in parts)]
    assert len([text for text in caplog.messages if "by shards" in text]) == is_ignored


@pytest.mark.parametrize("cluster", [True], indirect=True)
async def test_a_kind_that_cannot_be_selected_does_not_matter_for_others(
    cluster: LocalCluster, kex: Objects, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.apply(make_crd("Extension", "extensions"))
    listings = Listings(cluster, ignorant="extensions")

    def declare(replica: Replica) -> None:
        kopf.on.event("extensions", registry=replica.registry)(lambda **_: None)
        declare_for(calls)(replica)

    async with running(declare, "a", "b") as [a, b]:
        a.take(HALF)
        await asyncio.sleep(120)
        await a.leave(frozenset(range(64)))
        await asyncio.sleep(120)
        a.take(frozenset(range(64)))
        b.take(ALL_SLOTS - HALF)
        await asyncio.sleep(120)
        await kex.create_all(NAMES)
        await kex.wait_all_handled(NAMES)
        for replica, part in ((a, HALF), (b, ALL_SLOTS - HALF)):
            seen = {path.rpartition("/")[2]: params.get("shardSelector") for path, params in replica.watches}
            assert (seen[KEX], seen["extensions"]) == (make_shard_selector(part), None)
    assert Counter(listings.selectors["extensions"]) == {"none": 2, None: 3}  # by each replica
    assert Counter(listings.selectors[KEX])["none"] == 2
    refusals = [text for text in caplog.messages if "by shards" in text]
    assert len(refusals) == 2
    assert all("does not select extensions.v1.kopf.dev by shards" in text for text in refusals)


async def test_all_streams_of_a_kind_ask_once(cluster: LocalCluster, calls: Calls) -> None:
    """If the server is busy then, they ask again."""
    for name in ("one", "two", "three"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    listings = Listings(cluster)
    cluster.faults.inject(503, path=f"/{KEX}$", times=1)

    def declare(replica: Replica) -> None:
        replica.namespaces = ("one", "two", "three")
        declare_for(calls)(replica)

    async with running(declare, "a") as [a]:
        a.take(HALF)
        await asyncio.sleep(120)
        assert len({path for path, _ in a.watches if path.endswith(KEX)}) == 3
    assert listings.selectors[KEX].count("none") == 2
    assert len(listings.selectors[KEX]) == 5
