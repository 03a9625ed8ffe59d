"""A replica that cannot prove that it is alive: it begins nothing, writes nothing, and is as new when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from typing import Any

import pytest

import kopf
from kopf._client.resources.watch_machine import WatchMachine
from kopf._values.slots import ALL_SLOTS, get_slot
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Objects
from tests.behaviour.replicas import Replica, owning, running, slots_of
from tests.behaviour.running import Calls, Logs

pytestmark = pytest.mark.fastforward

KEX = "kopfexamples"


def set_deadline(replica: Replica, seconds: float) -> None:
    """Begin with all objects; it is over in so many seconds, whether or not anybody notices."""
    fence = replica.share.fence
    assert fence is not None
    fence.open(fence.now() + seconds)
    replica.moves.take_over(ALL_SLOTS)


def count_writes(cluster: LocalCluster) -> int:
    return sum(count for (verb, plural, _), count in cluster.counters.items() if verb == "patch" and plural == KEX)


async def test_in_the_middle_of_a_handler(cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry, id="1")
        @kopf.on.create(KEX, registry=replica.registry, id="2")
        @kopf.on.create(KEX, registry=replica.registry, id="3")
        async def fn(**_: Any) -> None:
            calls.append("called")
            if len(calls) == 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    calls.append("cancelled")
                    raise

    async with owning(declare, "a") as [a]:
        await kex.create()
        await calls.wait_length(2)
        before = count_writes(cluster)
        await a.moves.give_up()
        assert calls == ["called", "called", "cancelled"]
        await kex.merge({"spec": {"field": "changed"}})
        await asyncio.sleep(120)
        assert calls == ["called", "called", "cancelled"]
        assert count_writes(cluster) == before + 1  # ours
        a.take()
        await kex.wait_handled()
        assert calls == ["called", "called", "cancelled", "called", "called"]  # the first one was saved
    logs.check()


async def test_in_the_middle_of_saving(cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs) -> None:
    """What is repeated after the deadline, is not even sent; the same if nobody has noticed that it is over."""

    def declare(replica: Replica) -> None:
        replica.settings.networking.error_backoffs = (20, 20, 20)

        kopf.on.create(KEX, registry=replica.registry)(calls.noting("called"))

    async with running(declare, "a") as [a]:
        set_deadline(a, 10)
        rule = cluster.faults.inject(500, verb="patch", resource=KEX)
        obj = await kex.create()
        await calls.wait_length(1)
        await asyncio.sleep(5)
        cluster.faults.remove(rule)
        await asyncio.sleep(120)
        assert (await kex.get())["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
        assert calls == ["called"]
        await a.moves.give_up()
        a.take()
        await kex.wait_handled()
        assert calls == ["called", "called"]
    logs.check()


async def test_nothing_begins_behind_it(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        async def change(**_: Any) -> None:
            calls.append("change")

        kopf.on.event(KEX, registry=replica.registry, id="raw")(calls.noting("raw"))

        kopf.timer(KEX, registry=replica.registry, interval=7, id="tick")(calls.noting("tick"))

        kopf.daemon(KEX, registry=replica.registry, initial_delay=15, cancellation_timeout=1, id="daemon")(
            calls.noting("daemon")
        )

        @kopf.index(KEX, registry=replica.registry)
        async def idx(name: str, **_: Any) -> str:
            indexed.append(name)
            return name

    indexed: list[str] = []
    async with running(declare, "a") as [a]:
        set_deadline(a, 10)
        await kex.create("before")
        await asyncio.sleep(11)
        before = [*calls]
        assert set(before) == {"change", "raw", "tick"}
        writes = count_writes(cluster)
        await kex.merge({"spec": {"field": "changed"}}, "before")
        await kex.create("after")
        await asyncio.sleep(120)
        assert calls == before
        assert "after" in indexed
        assert count_writes(cluster) == writes + 1  # ours
        await a.moves.give_up()
        a.take()
        await kex.wait_all_handled(["before", "after"])
        await calls.wait(lambda items: items.count("daemon") == 2)


async def test_what_ignores_its_end_cannot_write(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """Neither then, nor when the replica is back, and has got the objects again."""

    def declare(replica: Replica) -> None:
        @kopf.timer(KEX, registry=replica.registry, interval=1000)
        async def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
            calls.append("begun")
            if len(calls) == 1:
                for _number in range(30):
                    try:
                        await asyncio.sleep(1)
                    except asyncio.CancelledError:
                        calls.append("ignored")
                patch.metadata.labels["late"] = "yes"
                calls.append("late")

    async with owning(declare, "a") as [a]:
        await kex.create()
        await calls.wait_length(1)
        await asyncio.sleep(5)
        await a.moves.give_up()
        a.take()
        await calls.wait(lambda items: "late" in items)
        await asyncio.sleep(120)
        assert "labels" not in (await kex.get())["metadata"]
        assert [*calls].count("begun") == 2


@pytest.mark.fastforward("exit")
async def test_threads_that_go_on_cannot_write(cluster: LocalCluster, kex: Objects, sub: Objects, calls: Calls) -> None:
    released = threading.Event()

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        def fn(patch: kopf.Patch, **_: Any) -> None:
            calls.append("begun")
            released.wait(60)
            try:
                kopf.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfStatusExample", "metadata": {"name": "child"}})
            except BaseException as e:
                calls.append(type(e).__name__)
                raise
            calls.append("applied")

    try:
        async with running(declare, "a") as [a]:
            obj = await kex.create()
            a.take()
            await calls.wait_length(1)
            await a.moves.give_up()
            a.take(ALL_SLOTS - slots_of(obj))
            released.set()
            await calls.wait_length(2)
            assert calls.items[1] != "applied"
            assert not sub.history
    finally:
        released.set()


async def test_all_at_once(kex: Objects, calls: Calls, logs: Logs) -> None:
    """Many objects in all stages; the next owner goes on with them."""

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(name: str, retry: int, **_: Any) -> None:
            await asyncio.sleep(int(name[3:]) % 7)
            calls.append((replica.name, name))
            if not retry:
                raise kopf.TemporaryError("again", delay=int(name[3:]) % 5)

    async with owning(declare, "a", "b") as [a, b]:
        names = await kex.create_all([f"obj{number}" for number in range(40)])
        await asyncio.sleep(4)
        await a.moves.give_up()
        by_a = len(calls)
        assert 0 < by_a < 80
        b.take()
        await kex.wait_all_handled(names)
        await asyncio.sleep(120)
        assert {name for name, _ in calls.items[by_a:]} == {"b"}
    logs.check()


async def test_foreign_objects_take_no_memory(cluster: LocalCluster, kex: Objects, calls: Calls) -> None:
    """Nothing is kept of them, once they have come by."""
    tracked: list[int] = []

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(uid: str, **_: Any) -> None:
            tracked.append(get_slot(uid))

    async with running(declare, "a") as [a]:
        a.take(frozenset({0}))
        await kex.create_all(f"obj{number}" for number in range(300))
        await asyncio.sleep(120)
        machines = [item for item in gc.get_objects() if isinstance(item, WatchMachine)]
        [known] = [len(item) for item in machines if item._is_foreign == a.share.is_foreign]
        assert set(tracked) <= {0}
        assert known == len(tracked)


async def test_what_ends_late_begins_nothing(kex: Objects, calls: Calls) -> None:
    """Daemons whose end is a reason to look at their object again: it is of another replica by now."""

    def declare(replica: Replica) -> None:
        @kopf.daemon(KEX, registry=replica.registry)
        async def fn(**_: Any) -> None:
            calls.append("begun")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            await asyncio.sleep(10)
            calls.append("ended")

    async with owning(declare, "a") as [a]:
        obj = await kex.create()
        await calls.wait_length(1)
        await a.moves.give_up()
        a.take(ALL_SLOTS - slots_of(obj))
        await asyncio.sleep(120)
        assert calls == ["begun", "ended"]
