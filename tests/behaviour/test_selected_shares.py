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
    is_ignored = "does not select by shards" in caplog.text
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
