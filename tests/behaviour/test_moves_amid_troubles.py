"""Objects that move between replicas while something else happens: to the cluster, to the watches, to the handlers."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest

import kopf
from kopf._values.slots import ALL_SLOTS, Slots
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import IS_THOROUGH
from tests.behaviour.objects import API, Objects, watch
from tests.behaviour.peerings import create_peering
from tests.behaviour.replicas import Replica, owning, running, slots_of
from tests.behaviour.resources import create, define, define_namespaces, undefine
from tests.behaviour.running import Calls, Logs
from tests.behaviour.test_owned_objects import refer

pytestmark = pytest.mark.fastforward

KEX, SUB = "kopfexamples", "kopfstatusexamples"
HALF = frozenset(range(128))
ROUNDS = 25 if IS_THOROUGH else 10
SEED = os.environ.get("KOPF_TEST_SEED", "20261127")


async def settle() -> None:
    """Wait until all is done that can be done at all."""
    await asyncio.sleep(120)


async def test_the_new_owner_is_not_behind_the_former_one(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """Whatever its own watch knew: it looks at what the former owner has written last."""

    def declare(replica: Replica) -> None:
        @kopf.index(KEX, registry=replica.registry)  # so it is watched by all
        async def idx(spec: kopf.Spec, **_: Any) -> Any:
            return spec["field"]

        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(reason: str, spec: kopf.Spec, idx: kopf.Index[None, str], **_: Any) -> None:
            calls.append((replica.name, reason, spec["field"], [*idx[None]]))

        @kopf.on.event(KEX, registry=replica.registry)
        async def raw(spec: kopf.Spec, **_: Any) -> None:
            raws.append((replica.name, spec["field"]))

    raws: list[tuple[str, str]] = []
    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_and_wait(spec={"field": "old"})
        await settle()
        cluster.faults.lag_watches(30)
        await kex.merge({"spec": {"field": "new"}})
        await asyncio.sleep(40)
        await kex.wait_handled(field="new")
        await a.move(b)
        await settle()
        cluster.faults.lag_watches(None)
        await settle()
    assert calls == [
        ("a", "create", "old", ["old"]),
        ("a", "update", "new", ["new"]),
        ("b", "resume", "new", ["new"]),
    ]
    assert {field for name, field in raws if name == "b"} == {"new"}


async def test_back_and_forth_with_a_lag(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """What was on the way to a former owner, is not taken for news when it is the owner again."""

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        async def fn(spec: kopf.Spec, **_: Any) -> None:
            calls.append((replica.name, spec["field"]))

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_and_wait(spec={"field": "0"})
        cluster.faults.lag_watches(1, up_to=5)
        owners = [a, b]
        expected = [("a", "0")]
        for number in range(1, 11):
            await owners[0].move(owners[1])
            owners.reverse()
            await kex.merge({"spec": {"field": str(number)}})
            await calls.wait_length(number + 1)
            expected.append((owners[0].name, str(number)))
        cluster.faults.lag_watches(None)
        await settle()
        assert calls == expected


async def test_what_waits_in_the_line_of_indexing(kex: Objects, calls: Calls) -> None:
    """It came when the object was ours before, and there is another owner's work in between."""
    is_slow = False

    def declare(replica: Replica) -> None:
        @kopf.index(KEX, registry=replica.registry)
        async def idx(spec: kopf.Spec, **_: Any) -> Any:
            if replica.name == "a" and is_slow:
                await asyncio.sleep(10)
            return spec["field"]

        kopf.on.event(KEX, registry=replica.registry, id="raw")(
            calls.noting(lambda spec, **_: (replica.name, spec["field"]))
        )

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create(spec={"field": "first"})
        await calls.wait_length(1)
        is_slow = True
        await kex.merge({"spec": {"field": "second"}})
        await asyncio.sleep(1)
        await a.move(b)
        await calls.wait_length(2)
        await kex.merge({"spec": {"field": "third"}})
        await calls.wait_length(3)
        await b.move(a)
        await settle()
        assert calls == [("a", "first"), ("b", "second"), ("b", "third"), ("a", "third")]


async def test_indices_are_whole(kex: Objects, sub: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.index(KEX, registry=replica.registry)
        async def idx(name: str, **_: Any) -> dict[str, int]:
            return {name: 1}

        @kopf.on.create(SUB, registry=replica.registry)
        @kopf.on.update(SUB, registry=replica.registry)
        async def fn(idx: kopf.Index[str, int], **_: Any) -> None:
            calls.append((replica.name, sorted(idx)))

    async with running(declare, "a", "b") as [a, b]:
        a.take(HALF)
        b.take(ALL_SLOTS - HALF)
        names = await kex.create_all([f"obj{number}" for number in range(10)])
        await settle()
        for replica in (a, b):
            [name] = [f"of-{replica.name}"]
            while not slots_of(await sub.create(name)) <= replica.share.slots:
                await sub.delete(name)
            await sub.wait_handled(name)
        assert {tuple(found) for _, found in calls} == {tuple(sorted(names))}
        await b.move(a, ALL_SLOTS - HALF)
        await kex.delete("obj0")
        await kex.create("obj10")
        await settle()
        calls.items.clear()
        await sub.change_and_wait("of-b", field="changed")
        assert calls == [("a", sorted({*names, "obj10"} - {"obj0"}))]


async def test_objects_that_vanish_meanwhile_leave_the_indices(cluster: LocalCluster, kex: Objects) -> None:
    """The stream is interrupted by the take-over before it could tell; and it is no deletion for the handlers."""
    deleted: list[str] = []

    def declare(replica: Replica) -> None:
        @kopf.index(KEX, registry=replica.registry)
        async def idx(name: str, **_: Any) -> dict[str, int]:
            return {name: 1}

        @kopf.on.event(KEX, registry=replica.registry)
        async def raw(type: str | None, **_: Any) -> None:
            deleted.extend([replica.name] * (type == "DELETED"))

        @kopf.timer(SUB, registry=replica.registry, interval=1)
        async def fn(idx: kopf.Index[str, int], **_: Any) -> None:
            seen[:] = sorted(idx)

    seen: list[str] = []
    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_all(["one", "two"])
        await settle()
        cluster.faults.lag_watches(3600)
        await a.leave()
        await kex.delete("one")
        b.take()
        cluster.faults.lag_watches(None)
        async with watch(kex.api, "KopfStatusExample", SUB) as objects:
            await objects.create()
            await settle()
    assert seen == ["two"]
    assert deleted == []


async def test_children_of_others_wake_their_owners(kex: Objects, sub: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry, owns=SUB)
        @kopf.on.update(KEX, registry=replica.registry, owns=SUB)
        async def fn(name: str, **_: Any) -> None:
            calls.append((replica.name, name))

    async with owning(declare, "a", "b") as [a, b]:
        parent = await kex.create_and_wait()
        child = await sub.create("child", ownerReferences=refer(parent))
        await calls.wait_length(2)
        both = slots_of(parent, child)
        await a.move(b, both - slots_of(parent))
        await sub.merge({"spec": {"field": "changed"}}, "child")
        await calls.wait_length(3)
        await a.move(b, slots_of(parent))
        await settle()
        count = len(calls)
        await sub.merge({"spec": {"field": "changed again"}}, "child")
        await calls.wait_length(count + 1)
        await settle()
        assert calls.items[:3] == [("a", "obj")] * 3
        assert calls.items[3:] == [("b", "obj")] * (len(calls) - 3)


async def test_kinds_that_vanish_and_are_back(api: API, calls: Calls) -> None:
    define(api.cluster, "temps")

    def declare(replica: Replica) -> None:
        kopf.on.event("temps", registry=replica.registry)(calls.noting(lambda name, **_: (replica.name, name)))

    async with owning(declare, "a", "b") as [a, b]:
        await settle()
        await create(api, "temps", "first")
        await calls.wait_length(1)
        await undefine(api, "temps")
        await a.move(b)
        define(api.cluster, "temps")
        await create(api, "temps", "second")
        await settle()
        await b.move(a)
        await settle()
        assert [call for call in calls if call[1] == "second"] == [("b", "second"), ("a", "second")]


async def test_namespaces_that_come(api: API, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        replica.namespaces = ("ns*",)

        kopf.on.event(KEX, registry=replica.registry)(calls.noting(lambda namespace, **_: (replica.name, namespace)))

    define_namespaces(api.cluster, "ns1")
    async with owning(declare, "a", "b") as [a, b]:
        await settle()
        await create_in(api, "ns1")
        await calls.wait_length(1)
        define_namespaces(api.cluster, "ns2")
        await a.leave()
        await create_in(api, "ns2")
        await settle()
        b.take()
        await calls.wait_length(3)
        define_namespaces(api.cluster, "ns3")
        await settle()
        await create_in(api, "ns3")
        await settle()
        assert calls.items[0] == ("a", "ns1")
        assert sorted(calls.items[1:]) == [("b", "ns1"), ("b", "ns2"), ("b", "ns3")]


async def create_in(api: API, namespace: str) -> None:
    path = f"/apis/kopf.dev/v1/namespaces/{namespace}/{KEX}"
    obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj"}, "spec": {}}
    await api.request("POST", path, obj)


async def test_pauses(api: API, kex: Objects, calls: Calls, logs: Logs) -> None:
    """A share can be moved while the operator is paused; it is handled when that is over."""
    peering = await create_peering(api)

    def declare(replica: Replica) -> None:
        replica.settings.peering.standalone = False
        replica.settings.peering.priority = 100 if replica.name == "b" else 1

        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        @kopf.daemon(KEX, registry=replica.registry, cancellation_timeout=1)
        async def fn(name: str, reason: str | None = None, stopped: kopf.Stopped | None = None, **_: Any) -> None:
            calls.append((replica.name, name, reason))
            if stopped is not None:
                await stopped.wait()

    async with running(declare, "b") as [b]:
        await settle()
        b.take(HALF)
        await kex.create("one")
        await settle()
        await peering.put("other", priority=1000, lifetime=1e9)
        await logs.wait("Pausing operations in favour of .*")
        b.take(ALL_SLOTS)
        await kex.create("two")
        await settle()
        calls.items.clear()
        assert await b.leave(HALF) == frozenset()
        await peering.remove("other")
        await settle()
        objects = {name: await kex.get(name) for name in ("one", "two")}
        ours = {name for name, obj in objects.items() if not slots_of(obj) & HALF}
        assert {name for _, name, _ in calls} == ours
        b.take()
        await settle()
        assert {name for _, name, _ in calls} == {"one", "two"}
        assert max(Counter(calls.items).values(), default=0) == 1


async def test_handlers_that_are_declared_meanwhile(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(reason: str, name: str, **_: Any) -> None:
            calls.append((replica.name, reason, name))

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_and_wait("old")

        @kopf.on.event(KEX, registry=b.registry)
        async def late(**_: Any) -> None: ...

        await a.leave()
        b.take()
        await settle()
        await kex.create_and_wait("new")

        @kopf.on.event(KEX, registry=b.registry)
        async def later(**_: Any) -> None: ...

        await settle()
        assert calls == [("a", "create", "old"), ("b", "resume", "old"), ("b", "create", "new")]
        await b.move(a)
        await settle()
        await a.move(b)  # it is not new to its watcher, but it was of somebody else meanwhile
        await settle()
        assert sorted(calls.items[3:]) == sorted((who, "resume", name) for who in "ab" for name in ("new", "old"))


@pytest.mark.parametrize("status", [403, 410, 500])
async def test_listings_that_fail(cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs, status: int) -> None:
    logs.expected.append("Cannot watch")

    def declare(replica: Replica) -> None:
        replica.settings.watching.initial_streaming = False
        replica.settings.watching.chunk_size = 2
        replica.settings.networking.error_backoffs = ()

        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(reason: str, name: str, **_: Any) -> None:
            calls.append((replica.name, reason, name))

    async with owning(declare, "a", "b") as [a, b]:
        names = await kex.create_all([f"obj{number}" for number in range(5)])
        await kex.wait_all_handled(names)
        cluster.faults.inject(status, verb="list", resource=KEX, path="continue=" if status == 410 else None, times=2)
        await a.move(b)
        await settle()  # what is denied, is tried again once a minute
        await settle()
        assert Counter(calls.items) == Counter(
            [*(("a", "create", name) for name in names), *(("b", "resume", name) for name in names)]
        )


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("is_indexed", [False, True])
async def test_random_moves(
    cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs, lag: float, *, is_indexed: bool
) -> None:
    """Every change is handled by its owner, once; parts go to and fro, while handlers run and objects change."""
    dice = random.Random(SEED)
    busy: Counter[str] = Counter()

    def declare(replica: Replica) -> None:
        if is_indexed:
            kopf.index(KEX, registry=replica.registry)(lambda name, **_: {name: 1})

        @kopf.on.create(KEX, registry=replica.registry, id="1", param=1)
        @kopf.on.create(KEX, registry=replica.registry, id="2", param=2)
        @kopf.on.update(KEX, registry=replica.registry, id="1", param=1)
        @kopf.on.update(KEX, registry=replica.registry, id="2", param=2)
        async def fn(name: str, uid: str, spec: kopf.Spec, param: int, reason: str, **_: Any) -> None:
            assert not busy[name]
            busy[name] += 1
            await asyncio.sleep(dice.uniform(0, 2))
            busy[name] -= 1
            assert slots_of({"metadata": {"uid": uid}}) <= replica.share.slots
            calls.append((name, spec["field"], str(reason), param))

    async with running(declare, "a", "b", "c") as replicas:
        parts = [frozenset(range(80)), frozenset(range(80, 160)), frozenset(range(160, 256))]
        for replica, part in zip(replicas, parts, strict=True):
            replica.take(part)
        if lag:
            cluster.faults.lag_watches(0, up_to=lag)
        names = await kex.create_all([f"obj{number}" for number in range(12)])
        for round_ in range(ROUNDS):
            source, target = dice.sample(replicas, 2)
            slots = frozenset(dice.sample(sorted(source.share.slots), len(source.share.slots) // 2))
            moving = asyncio.create_task(source.move(target, slots))
            for name in dice.sample(names, 3):
                await kex.merge({"spec": {"field": f"{name}-{round_}"}}, name)
                await asyncio.sleep(dice.uniform(0, 2))
            await moving
        cluster.faults.lag_watches(None)
        await kex.wait_all_handled(names)
        await settle()
        held: list[Slots] = [replica.share.slots for replica in replicas]
        assert sum(map(len, held)) == 256
        last = {name: (await kex.get(name))["spec"]["field"] for name in names}
        assert max(Counter(calls.items).values()) == 1
        for name, field in last.items():
            assert {call[3] for call in calls if call[:2] == (name, field)} == {1, 2}
    assert not logs.find("Another operator .*")
    logs.check()


async def test_random_fences(cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs) -> None:
    """Whatever is given up amid it, is done by the next owner; nobody works beside it."""
    dice = random.Random(SEED)
    busy: Counter[tuple[str, str]] = Counter()

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry, id="1")
        @kopf.on.update(KEX, registry=replica.registry, id="1")
        @kopf.on.create(KEX, registry=replica.registry, id="2")
        @kopf.on.update(KEX, registry=replica.registry, id="2")
        @kopf.timer(KEX, registry=replica.registry, interval=3)
        async def fn(name: str, uid: str, spec: kopf.Spec, reason: str | None = None, **_: Any) -> None:
            kind = "timer" if reason is None else "change"
            assert not busy[name, kind]
            busy[name, kind] += 1
            try:
                await asyncio.sleep(dice.uniform(0, 2))
                assert slots_of({"metadata": {"uid": uid}}) <= replica.share.slots
                calls.append((name, spec["field"]))
            finally:
                busy[name, kind] -= 1

    async with running(declare, "a", "b") as replicas:
        replicas[0].take(HALF)
        replicas[1].take(ALL_SLOTS - HALF)
        names = await kex.create_all([f"obj{number}" for number in range(12)])
        for round_ in range(ROUNDS):
            source, target = dice.sample(replicas, 2)
            given_up = source.share.slots
            await source.moves.give_up()
            for name in dice.sample(names, 3):
                await kex.merge({"spec": {"field": f"{name}-{round_}"}}, name)
                await asyncio.sleep(dice.uniform(0, 2))
            parts = frozenset(dice.sample(sorted(given_up), len(given_up) // 2))
            target.take(parts)
            source.take(given_up - parts)
            await asyncio.sleep(dice.uniform(0, 5))
        await kex.wait_all_handled(names)
        last = {name: (await kex.get(name))["spec"]["field"] for name in names}
        assert set(last.items()) <= {*calls}
    assert not logs.find("Another operator .*")
    logs.check()
