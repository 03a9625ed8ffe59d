"""Objects that move to another replica in the middle of something: what goes on there, and what begins anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Objects
from tests.behaviour.replicas import Replica, owning, running
from tests.behaviour.running import Calls, Logs

pytestmark = pytest.mark.fastforward

KEX = "kopfexamples"

STORAGES = {
    "annotations": kopf.AnnotationsProgressStorage(),
    "status": kopf.StatusProgressStorage(),
    "both": kopf.SmartProgressStorage(),
}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> kopf.ProgressStorage:
    return STORAGES[request.param]


async def test_retries_and_results(objects: Objects, calls: Calls, logs: Logs, storage: kopf.ProgressStorage) -> None:
    def declare(replica: Replica) -> None:
        replica.settings.persistence.progress_storage = storage

        @kopf.on.create(objects.plural, registry=replica.registry, id="first")
        async def first(**_: Any) -> str:
            calls.append((replica.name, "first", 0.0))
            return replica.name

        @kopf.on.create(objects.plural, registry=replica.registry, id="second")
        async def second(retry: int, **_: Any) -> str:
            calls.append((replica.name, f"second {retry}", asyncio.get_running_loop().time()))
            if not retry:
                raise kopf.TemporaryError("not yet", delay=100)
            return replica.name

    async with owning(declare, "a", "b") as [a, b]:
        await objects.create()
        await calls.wait_length(2)
        await asyncio.sleep(10)
        await a.move(b)
        obj = await objects.wait_handled()
        assert [call[:2] for call in calls] == [("a", "first"), ("a", "second 0"), ("b", "second 1")]
        assert calls[2][2] - calls[1][2] == pytest.approx(100, abs=2)
        assert (obj["status"]["first"], obj["status"]["second"]) == ("a", "b")
    logs.check()


async def test_resuming_is_once_for_each_move_however_often_the_object_comes_back(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.on.resume(KEX, registry=replica.registry)(
            calls.noting(
                lambda retry, **_: (replica.name, retry), error=kopf.TemporaryError("not yet", delay=5), times=1
            )
        )

    async with running(declare, "a", "b") as [a, b]:
        await kex.create()
        a.take()
        await calls.wait_length(2)
        a.take()  # what is there already
        await kex.merge({"spec": {"field": "changed"}})
        await a.move(b)
        await calls.wait_length(4)
        await b.move(a)
        await calls.wait_length(5)
        await a.move(b)  # in the middle of its retries
        await asyncio.sleep(60)
        assert calls.items[:5] == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 0)]
        assert {name for name, _ in calls.items[5:]} == {"b"}
        assert len(calls) <= 7


async def test_timers_begin_anew(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.timer(KEX, registry=replica.registry, interval=100, initial_delay=30, id="later")(
            calls.noting(lambda **_: (replica.name, "later", asyncio.get_running_loop().time()))
        )

        kopf.timer(KEX, registry=replica.registry, interval=100, id="at_once")(
            calls.noting(lambda **_: (replica.name, "at once", asyncio.get_running_loop().time()))
        )

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create()
        await calls.wait_length(2)
        await asyncio.sleep(10)
        moved = asyncio.get_running_loop().time()
        await a.move(b)
        await calls.wait_length(4)
        times = {(name, what): time - moved for name, what, time in calls}
        assert times["b", "at once"] == pytest.approx(0, abs=2)
        assert times["b", "later"] == pytest.approx(30, abs=2)


async def test_finalizers_and_deletions_while_nobody_owns_the_object(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        kopf.on.delete(KEX, registry=replica.registry, id="fn")(
            calls.noting(
                lambda retry, **_: (replica.name, retry), error=kopf.TemporaryError("not yet", delay=30), times=1
            )
        )

        @kopf.daemon(KEX, registry=replica.registry, cancellation_timeout=1)
        async def daemon(stopped: kopf.Stopped, **_: Any) -> None:
            await stopped.wait()

    async with owning(declare, "a", "b") as [a, b]:
        for name in ("begun", "between"):
            await kex.create(name)
            await kex.wait(lambda obj: obj["metadata"].get("finalizers"), name)
        await kex.delete("begun")
        await calls.wait_length(1)
        assert await a.leave() == frozenset()
        await kex.delete("between")
        await asyncio.sleep(10)
        assert calls == [("a", 0)]
        b.take()
        await kex.wait_all_gone(("begun", "between"))
        assert sorted(calls.items[1:]) == [("b", 0), ("b", 1), ("b", 1)]


async def test_events_are_posted_by_those_who_have_been_in_the_handlers(api: API, kex: Objects) -> None:
    def declare(replica: Replica) -> None:
        replica.settings.posting.enabled = True

        @kopf.on.create(KEX, registry=replica.registry)
        @kopf.on.resume(KEX, registry=replica.registry)
        async def fn(body: kopf.Body, reason: str, **_: Any) -> None:
            kopf.event(body, type="Normal", reason=f"By{replica.name}", message="done")

    async with owning(declare, "a", "b") as [a, b]:
        await kex.create_and_wait()
        await a.move(b)
        await asyncio.sleep(10)
    found = [event["reason"] for event in await api.list_events() if event["reason"].startswith("By")]
    assert sorted(found) == ["Bya", "Byb"]
