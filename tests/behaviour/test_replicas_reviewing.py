"""Admission reviews that come to any of the replicas, and the memos of the objects there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import kopf
from kopf.testing import SyncSimulation
from tests.admission.reviewing import make_review
from tests.behaviour.objects import Obj, Objects
from tests.behaviour.replicas import Replica, running
from tests.behaviour.running import Calls
from tests.behaviour.test_replica_stories import _quiet as _quiet
from tests.testing.kopfexamples import CRD

pytestmark = pytest.mark.fastforward

KEX = "kopfexamples"


class Server:
    """The webhook server of one replica, which is called by the test."""

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        self._fn = fn
        yield {"url": "https://127.0.0.1:1"}
        await asyncio.Event().wait()

    async def review(self, operation: str, obj: Obj) -> bool:
        new, old = (None, obj) if operation == "DELETE" else (obj, obj)
        answer: Any = await self._fn(make_review(operation, new, old))
        return bool(answer["response"]["allowed"])


@pytest.fixture
def servers() -> dict[str, Server]:
    return {"a": Server(), "b": Server()}


@pytest.fixture
def declare(calls: Calls, servers: dict[str, Server]) -> Callable[[Replica], None]:
    def declare(replica: Replica) -> None:
        replica.settings.admission.server = servers[replica.name]

        @kopf.on.event(KEX, registry=replica.registry)
        def see(memo: kopf.Memo, **_: Any) -> None:
            calls.append((replica.name, "seen", dict(memo)))
            memo.owner = replica.name

        @kopf.on.validate(KEX, registry=replica.registry)
        def check(memo: kopf.Memo, names: kopf.Index[str, int], **_: Any) -> None:
            calls.append((replica.name, [*names], dict(memo)))
            memo.reviews = memo.get("reviews", 0) + 1

        @kopf.index(KEX, registry=replica.registry)
        def names(name: str, **_: Any) -> dict[str, int]:
            return {name: 1}

    return declare


async def test_each_replica_answers_and_the_owner_knows_more(
    kex: Objects, calls: Calls, servers: dict[str, Server], declare: Callable[[Replica], None]
) -> None:
    async with running(declare, "a", "b") as [a, _]:
        a.take()
        obj = await kex.create()
        await calls.wait_length(1)
        calls.items.clear()
        for name in ("a", "b", "a", "b"):
            assert await servers[name].review("UPDATE", obj)
        assert calls == [
            ("a", ["obj"], {"owner": "a"}),
            ("b", ["obj"], {}),
            ("a", ["obj"], {"owner": "a", "reviews": 1}),
            ("b", ["obj"], {}),
        ]


async def test_memos_begin_anew_with_each_move(
    kex: Objects, calls: Calls, servers: dict[str, Server], declare: Callable[[Replica], None]
) -> None:
    async with running(declare, "a", "b") as [a, b]:
        a.take()
        obj = await kex.create()
        await calls.wait_length(1)
        for server in servers.values():
            assert await server.review("UPDATE", obj)
        calls.items.clear()
        await a.move(b)
        await calls.wait_length(1)
        await b.move(a)
        await calls.wait_length(2)
        assert calls == [("b", "seen", {}), ("a", "seen", {})]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
async def test_nothing_is_kept_where_nobody_tells_of_the_deletion(
    kex: Objects, calls: Calls, servers: dict[str, Server], operation: str
) -> None:
    def declare(replica: Replica) -> None:
        replica.settings.admission.server = servers[replica.name]

        @kopf.on.validate(KEX, registry=replica.registry)
        def check(memo: kopf.Memo, **_: Any) -> None:
            calls.append(dict(memo))
            memo.reviewed = True

    async with running(declare, "a", "b") as [a, _]:
        a.take()
        obj = await kex.create()
        await servers["a"].review("UPDATE", obj)
        await servers["b"].review(operation, obj)
        await servers["a"].review("UPDATE", obj)
        assert calls == [{}, {}, {}]


async def test_indices_keep_no_memos_of_what_is_gone(kex: Objects, calls: Calls) -> None:
    def declare(replica: Replica) -> None:
        @kopf.index(KEX, registry=replica.registry)
        def names(memo: kopf.Memo, name: str, **_: Any) -> dict[str, int]:
            memo.indexed = True
            calls.append((replica.name, name))
            return {name: 1}

    async with running(declare, "a", "b") as [a, b]:
        a.take()
        await kex.create_all(("gone", "there"))
        await calls.wait_length(4)
        await kex.delete_and_wait("gone")
        await asyncio.sleep(10)
        assert [len(replica.moves._runtime.memos) for replica in (a, b)] == [1, 1]


@pytest.mark.parametrize("mode", ["leader", "shards"])
def test_the_managed_configuration_has_one_owner_and_nobody_fights(mode: Any) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.validate(KEX, registry=registry)
    def check(**_: Any) -> None: ...

    def configure(settings: kopf.OperatorSettings) -> None:
        settings.admission.server = Server()
        settings.admission.managed = "auto.kopf.dev"

    with SyncSimulation(registry=registry, crds=CRD, operator=False) as simulation:
        replicas = simulation.replicas(3, mode, configure=configure)
        simulation.advance(seconds=60)
        resources = [write.resource for write in simulation.journal.get_writes()]
        # Some are refused, as the object is there, or is not.
        assert resources.count("validatingwebhookconfigurations") <= 2 * len(replicas)
        simulation.run(replicas[2].stop())
        simulation.run(replicas[0].stop())
        simulation.advance(seconds=5)
        assert len(simulation.get("validatingwebhookconfigurations", "auto.kopf.dev")["webhooks"]) == 1
        simulation.run(replicas.stop())
        assert not simulation.get("validatingwebhookconfigurations", "auto.kopf.dev").get("webhooks")
