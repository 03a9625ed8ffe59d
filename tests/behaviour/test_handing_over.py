"""Objects that move from one replica of the operator to another: nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import kopf
from kopf._values.slots import ALL_SLOTS
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Objects, get_patience
from tests.behaviour.replicas import Replica, owning, running, slots_of
from tests.behaviour.running import Calls, Logs

pytestmark = pytest.mark.fastforward

KEX = "kopfexamples"
Declare = Callable[[Replica], Any]


class Gate:
    """Holds a handler in its call until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    async def pass_through(self) -> None:
        self.entered.set()
        await self.opened.wait()


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@contextlib.asynccontextmanager
async def moving(a: Replica, b: Replica, gate: Gate) -> AsyncIterator[None]:
    """Move the objects, which wait for the gate, from one to the other; in the end, the gate is opened."""
    await gate.entered.wait()
    move = asyncio.create_task(a.move(b))
    await settle_partly()
    yield
    assert not move.done()
    gate.opened.set()
    await move


async def settle() -> None:
    """Wait until all is done that can be done at all."""
    await asyncio.sleep(120)


async def test_a_move_is_a_resume(kex: Objects, calls: Calls, logs: Logs) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        @kopf.on.delete(KEX, registry=replica.registry, optional=True)
        async def fn(reason: str, **_: Any) -> None:
            calls.append((replica.name, reason))

    async with running(declare, "a", "b") as [a, b]:
        await kex.create()
        await settle()
        assert not calls.items
        a.take()
        await kex.wait_handled()
        await a.move(b)
        await calls.wait_length(2)
        await kex.change_and_wait(field="changed")
        await settle()
        await b.move(a)
        await settle()
        assert calls == [("a", "create"), ("b", "resume"), ("b", "update"), ("a", "resume")]
    logs.check()


async def test_parts_are_handled_by_their_owners(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.on.create(KEX, registry=replica.registry)(calls.noting(lambda name, **_: (replica.name, name)))

    async with running(declare, "a", "b") as [a, b]:
        a.take(frozenset(range(100)))
        b.take(ALL_SLOTS - frozenset(range(100)))
        names = [f"obj{number}" for number in range(20)]
        owners = set()
        for name in names:
            await kex.create(name)
            [slot] = slots_of(await kex.wait_handled(name))
            owners.add(("a" if slot < 100 else "b", name))
        assert len(calls) == 20
        assert set(calls) == owners
        assert len({owner for owner, _ in owners}) == 2


@pytest.mark.parametrize("lifecycle", [kopf.lifecycles.one_by_one, kopf.lifecycles.all_at_once])
async def test_in_the_middle_of_a_creation(kex: Objects, calls: Calls, gate: Gate, lifecycle: Any) -> None:
    def declare(replica: Replica) -> None:
        replica.lifecycle = lifecycle

        @kopf.on.create(KEX, registry=replica.registry, id="1")
        @kopf.on.create(KEX, registry=replica.registry, id="2")
        @kopf.on.create(KEX, registry=replica.registry, id="3")
        async def fn(**_: Any) -> None:
            calls.append(replica.name)
            if len(calls) == 2:
                await gate.pass_through()

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        async with moving(a, b, gate):
            pass
        await kex.wait_handled()
        await settle()
        assert calls == ["a", "a", "b"]


async def settle_partly() -> None:
    """Let everything go on that does not wait for the gate; the handing over waits for it for a minute."""
    await asyncio.sleep(1)


async def test_retries_go_on(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.on.create(KEX, registry=replica.registry)(
            calls.noting(
                lambda retry, **_: (replica.name, retry, asyncio.get_running_loop().time()),
                error=kopf.TemporaryError("not yet", delay=30),
                times=2,
            )
        )

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(1)
        await asyncio.sleep(10)
        await a.move(b)
        await kex.wait_handled()
        assert [call[:2] for call in calls] == [("a", 0), ("b", 1), ("b", 2)]
        assert calls[1][2] - calls[0][2] == pytest.approx(30, abs=2)


async def test_deletions(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.delete(KEX, registry=replica.registry)
        async def fn(name: str, **_: Any) -> None:
            calls.append((replica.name, name))
            if name == "begun":
                await gate.pass_through()

    async with owning(declare, "a", "b") as [a, b]:
        for name in ("begun", "held", "later"):
            await kex.create(name)
            await kex.wait(lambda obj: obj["metadata"].get("finalizers"), name)
        await kex.delete("begun")
        async with moving(a, b, gate):
            await kex.delete("held")
            await settle_partly()
        await kex.delete("later")
        await kex.wait_all_gone(("begun", "held", "later"))
        await settle()
        assert calls == [("a", "begun"), ("b", "held"), ("b", "later")]


async def test_deletions_that_nobody_has_seen(kex: Objects, calls: Calls) -> None:
    """The object is gone when the new owner looks: as with restarts, nothing is to be done."""

    def declare(replica: Replica) -> None:
        kopf.on.event(KEX, registry=replica.registry, id="fn")(calls.noting(lambda type, **_: (replica.name, type)))

        @kopf.index(KEX, registry=replica.registry)
        async def index(name: str, **_: Any) -> dict[str, int]:
            return {name: 1}

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(1)
        await a.leave()
        await kex.delete_and_wait()
        b.take()
        await settle()
        assert calls == [("a", "ADDED")]


async def test_daemons(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.daemon(KEX, registry=replica.registry, cancellation_timeout=1)(
            calls.accompanying(lambda **_: (replica.name, None), lambda stopped, **_: (replica.name, stopped.reason))
        )

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(1)
        await a.move(b)
        await calls.wait_length(3)
        await b.move(a)
        await calls.wait_length(5)
        assert [name for name, _ in calls] == ["a", "a", "b", "b", "a"]
        for _, reason in calls.items[1:4:2]:
            assert kopf.DaemonStoppingReason.RESOURCE_HANDED_OVER in reason


async def test_daemons_that_do_not_stop_are_cancelled(kex: Objects, calls: Calls, logs: Logs) -> None:
    def declare(replica: Replica) -> None:
        kopf.daemon(KEX, registry=replica.registry)(calls.hanging((replica.name, "begun"), (replica.name, "ended")))

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(1)
        await a.move(b, timeout=5)
        await calls.wait_length(3)
        await settle()
        assert calls == [("a", "begun"), ("a", "ended"), ("b", "begun")]


async def test_timers(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.timer(KEX, registry=replica.registry, interval=10, idle=20)(
            calls.noting(lambda **_: (replica.name, asyncio.get_running_loop().time()))
        )

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(3)
        moved = asyncio.get_running_loop().time()
        await a.move(b)
        await calls.wait_length(6)
        assert [name for name, _ in calls] == ["a"] * 3 + ["b"] * 3
        assert calls[3][1] - moved == pytest.approx(20, abs=2)


async def test_timers_do_not_begin_while_they_are_left(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.timer(KEX, registry=replica.registry, interval=10)
        async def fn(name: str, **_: Any) -> None:
            calls.append((replica.name, name))
            if name == "holding":
                await gate.pass_through()

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create("other")
        await calls.wait_length(1)
        await kex.create("holding")
        async with moving(a, b, gate):
            await asyncio.sleep(30)
            assert calls == [("a", "other"), ("a", "holding")]
        await calls.wait_length(6)
        assert {name for name, _ in calls.items[2:]} == {"b"}


async def test_raw_events(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.event(KEX, registry=replica.registry)
        async def fn(type: str | None, spec: kopf.Spec, **_: Any) -> None:
            calls.append((replica.name, type, spec["field"]))
            if spec["field"] == "slow":
                await gate.pass_through()
                gate.opened.clear()

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create(spec={"field": "value"})
        await calls.wait_length(1)
        await kex.merge({"spec": {"field": "slow"}})
        await gate.entered.wait()
        await kex.merge({"spec": {"field": "waiting"}})
        async with moving(a, b, gate):
            await kex.merge({"spec": {"field": "last"}})
            await settle_partly()
        await calls.wait_length(3)
        await kex.merge({"spec": {"field": "new"}})
        await settle()
        assert calls.items == [
            ("a", "ADDED", "value"),
            ("a", "MODIFIED", "slow"),
            ("b", None, "last"),
            ("b", "MODIFIED", "new"),
        ]


async def test_updates_while_moving(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        async def fn(reason: str, spec: kopf.Spec, diff: kopf.Diff, **_: Any) -> None:
            calls.append((replica.name, reason, spec["field"]))
            if spec["field"] == "slow":
                await gate.pass_through()

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_and_wait()
        await kex.merge({"spec": {"field": "slow"}})
        async with moving(a, b, gate):
            await kex.merge({"spec": {"field": "during"}})
            await settle_partly()
        await kex.wait_handled(field="during")
        await settle()
        assert calls == [("a", "create", "value"), ("a", "update", "slow"), ("b", "update", "during")]


@pytest.mark.fastforward("exit")
async def test_threads_hold_their_slots(kex: Objects, calls: Calls, logs: Logs) -> None:
    released = threading.Event()

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        def fn(name: str, **_: Any) -> None:
            calls.append((replica.name, name))
            if name == "stuck":
                released.wait(60)

    try:
        async with owning(declare, "a", "b") as [a, b]:
            await kex.create_and_wait("other")
            stuck = await kex.create("stuck")
            await calls.wait_length(2)
            left = await a.leave(ALL_SLOTS, timeout=0.1)
            assert left == slots_of(stuck)
            b.take(ALL_SLOTS - left)
            assert a.share.slots == left
            released.set()
            async with asyncio.timeout(get_patience()):
                while await a.leave(left, timeout=0.1):
                    await asyncio.sleep(0.1)
            b.take(left)
            await kex.wait_handled("stuck")
            assert calls == [("a", "other"), ("a", "stuck")]
    finally:
        released.set()


async def test_results_that_could_not_be_saved(cluster: LocalCluster, kex: Objects, calls: Calls, logs: Logs) -> None:
    logs.expected.append("could not be|Throttling|has failed")

    def declare(replica: Replica) -> None:
        replica.settings.networking.error_backoffs = ()

        @kopf.on.create(KEX, registry=replica.registry, id="1")
        @kopf.on.create(KEX, registry=replica.registry, id="2")
        @kopf.daemon(KEX, registry=replica.registry, cancellation_timeout=1, optional=True)
        async def fn(retry: int, stopped: kopf.Stopped | None = None, **_: Any) -> None:
            if stopped is not None:
                calls.append((replica.name, "daemon"))
                await stopped.wait()
            else:
                calls.append((replica.name, retry))

    async with owning(declare, "a", "b") as [a, b]:
        cluster.faults.inject(500, verb="patch", resource=KEX, times=3)
        await kex.create()
        await calls.wait_length(2)
        await settle_partly()
        await a.move(b)
        await kex.wait_handled()
        await settle()
        assert [call for call in calls if call[1] != "daemon"] == [("a", 0), ("b", 0)]
        assert [call for call in calls if call[1] == "daemon"] == [("a", "daemon"), ("b", "daemon")]


async def test_sub_handlers(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(**_: Any) -> None:
            for number in range(3):

                @kopf.subhandler(id=str(number))
                async def sub(number: int = number, **_: Any) -> None:
                    calls.append((replica.name, number))
                    if number == 1:
                        await gate.pass_through()

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        async with moving(a, b, gate):
            pass
        await kex.wait_handled()
        await settle()
        assert calls == [("a", 0), ("a", 1), ("b", 2)]


async def test_taken_over_again_meanwhile(kex: Objects, calls: Calls, gate: Gate) -> None:
    """Whoever assigns the slots, has changed its mind: all goes on as before, and nothing is resumed."""

    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.update(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(reason: str, **_: Any) -> None:
            calls.append(reason)
            if reason == "update":
                await gate.pass_through()

        kopf.daemon(KEX, registry=replica.registry, cancellation_timeout=1, id="daemon")(calls.accompanying("daemon"))

    async with owning(declare, "a") as [a]:
        await kex.create()
        await calls.wait_length(2)
        await kex.merge({"spec": {"field": "changed"}})
        await gate.entered.wait()
        leaving = asyncio.create_task(a.leave())
        await settle_partly()
        a.take()
        gate.opened.set()
        assert await leaving == ALL_SLOTS
        await settle()
        assert sorted(calls) == ["create", "daemon", "daemon", "update"]
        assert await a.leave() == frozenset()


async def test_giving_up_meanwhile(kex: Objects, calls: Calls, gate: Gate) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(**_: Any) -> None:
            calls.append("called")
            await gate.pass_through()

    async with owning(declare, "a") as [a]:
        await kex.create()
        await gate.entered.wait()
        leaving = asyncio.create_task(a.leave())
        await settle_partly()
        await a.moves.give_up()
        assert await leaving == frozenset()
        gate.opened.set()
        a.take()
        await kex.wait_handled()
        assert calls == ["called", "called"]


async def test_two_parts_at_once(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(name: str, **_: Any) -> None:
            await asyncio.sleep(int(name[3:]) % 5)
            calls.append((replica.name, name))

    async with owning(declare, "a", "b", "c") as [a, b, c]:
        names = await kex.create_all([f"obj{number}" for number in range(30)])
        half = frozenset(range(128))
        await asyncio.gather(a.move(b, half), a.move(c, ALL_SLOTS - half))
        await kex.wait_all_handled(names)
        await settle()
        assert sorted(name for _, name in calls) == sorted(names)


@pytest.mark.fastforward("exit")
@pytest.mark.parametrize("kind", ["daemon", "timer"])
async def test_threads_of_daemons_and_timers(kex: Objects, calls: Calls, kind: str) -> None:
    released = threading.Event()

    def declare(replica: Replica) -> None:
        def fn(**_: Any) -> None:
            calls.append(replica.name)
            released.wait(60)

        if kind == "daemon":
            kopf.daemon(KEX, registry=replica.registry)(fn)
        else:
            kopf.timer(KEX, registry=replica.registry, interval=1)(fn)

    try:
        async with owning(declare, "a", "b") as [a, b]:
            obj = await kex.create()
            await calls.wait_length(1)
            assert await a.leave(timeout=0.1) == slots_of(obj)
            assert await a.leave(timeout=0.1) == slots_of(obj)
            released.set()
            async with asyncio.timeout(get_patience()):
                while await a.leave(timeout=0.1):
                    await asyncio.sleep(0.1)
            b.take()
            await calls.wait_length(2)
            assert calls == ["a", "b"]
            await b.leave()
    finally:
        released.set()


async def test_leaving_at_the_exit(kex: Objects, calls: Calls, logs: Logs) -> None:
    def declare(replica: Replica) -> None:
        @kopf.on.create(KEX, registry=replica.registry)
        async def fn(**_: Any) -> None:
            calls.append(replica.name)
            await asyncio.sleep(1)

    async with running(declare, "b") as [b]:
        async with owning(declare, "a") as [a]:
            await kex.create()
            await calls.wait_length(1)
            leaving = asyncio.create_task(a.leave())
        assert await leaving == frozenset()
        b.take()
        await kex.wait_handled()
        assert calls == ["a"]
    logs.check()
