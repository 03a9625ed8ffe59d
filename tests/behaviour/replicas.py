"""Replicas of one operator in one event loop, which share the objects as the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import kopf
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._controller.instruments import Instruments
from kopf._controller.memos import Memo
from kopf._controller.observer import Observer
from kopf._controller.runtime import Runtime
from kopf._controller.sharing import Share
from kopf._handlers.lifecycles import get_default_lifecycle
from kopf._operator.resource_observer import ResourceObserver
from kopf._operator.running import Operator, OperatorSetup
from kopf._operator.slot_moves import SlotMoves
from kopf._values.slots import ALL_SLOTS, Slots, get_slot
from tests.behaviour.objects import Obj, get_patience
from tests.fastforward import fast_forwarding

LEASE = 3600.0


class ScriptedOperator(Operator):
    """An operator that gets and leaves its objects as the test says, and not by Leases."""

    def __init__(self, setup: OperatorSetup, parts: asyncio.Future[tuple[SlotMoves, Share]]) -> None:
        super().__init__(setup)
        self._parts = parts

    def _make_replicas(self, runtime: Runtime, observer: ResourceObserver) -> Any:
        self._parts.set_result((SlotMoves(runtime, observer.watchers), runtime.share))
        return ScriptedReplicas()


class ScriptedReplicas:
    def __init__(self) -> None:
        self.joined = asyncio.Event()
        self.joined.set()
        self.parted = asyncio.Event()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        """The test does it, if it is to be done."""


class Replica:
    """One of the replicas: it begins with no objects."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.registry = kopf.OperatorRegistry()
        self.settings = kopf.OperatorSettings()
        self.settings.posting.enabled = False
        self.settings.peering.standalone = True
        self.settings.coordination.mode = "shards"
        self.lifecycle = get_default_lifecycle()
        self.namespaces: tuple[str, ...] = ()
        self.watches: list[tuple[str, Mapping[str, str]]] = []
        """The paths & parameters of all watch-streams."""
        self._parts: asyncio.Future[tuple[SlotMoves, Share]] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        kopf.on.login(registry=self.registry)(_login)

    async def start(self) -> None:
        """Start, and wait until it can get objects."""
        setup = OperatorSetup(
            registry=self.registry,
            settings=self.settings,
            lifecycle=self.lifecycle,
            namespaces=self.namespaces,
            identity=self.name,
            vault=None,
            memo=Memo(),
            ready_flag=None,
            endpoint=None,
            instruments=Instruments(make_client=self._make_client),
        )
        self._task = asyncio.create_task(ScriptedOperator(setup, self._parts).run())
        waited: list[asyncio.Future[Any]] = [self._task, self._parts]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    def _make_client(self, vault: Vault, settings: kopf.OperatorSettings, observer: Observer) -> APIClient:
        client = APIClient(vault, settings, observer)
        stream, watches = client.stream, self.watches

        def note(path: str, *, params: Mapping[str, str] | None = None, **options: Any) -> AsyncGenerator[list[bytes]]:
            watches.append((path, params or {}))
            return stream(path, params=params, **options)

        client.stream = note  # type: ignore[method-assign]  # it is not changed, only listened to
        return client

    @property
    def share(self) -> Share:
        return self._parts.result()[1]

    @property
    def moves(self) -> SlotMoves:
        return self._parts.result()[0]

    def take(self, slots: Slots = ALL_SLOTS) -> None:
        """Get these slots, too."""
        fence = self.share.fence
        assert fence is not None
        if fence.is_shut:
            fence.open(fence.now() + LEASE)
        self.moves.take_over(slots)

    async def leave(self, slots: Slots = ALL_SLOTS, *, timeout: float = 60.0) -> Slots:
        """Leave these slots; get those that could not be left."""
        async with asyncio.timeout(get_patience()):
            return await self.moves.hand_over(slots, timeout)

    async def move(self, other: Replica, slots: Slots = ALL_SLOTS, *, timeout: float = 60.0) -> None:
        """Hand the slots over to the other one."""
        assert await self.leave(slots, timeout=timeout) == frozenset()
        other.take(slots)

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with fast_forwarding():
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()


@contextlib.asynccontextmanager
async def running(declare: Callable[[Replica], Any], *names: str) -> AsyncIterator[list[Replica]]:
    """Run the replicas with the same handlers."""
    replicas = [Replica(name) for name in names]
    for replica in replicas:
        declare(replica)
    async with contextlib.AsyncExitStack() as stack:
        for replica in replicas:
            await replica.start()
            stack.push_async_callback(replica.stop)
        yield replicas


@contextlib.asynccontextmanager
async def owning(declare: Callable[[Replica], Any], *names: str) -> AsyncIterator[list[Replica]]:
    """Run the replicas with the same handlers; the first one owns all objects."""
    async with running(declare, *names) as replicas:
        replicas[0].take()
        yield replicas


def slots_of(*objects: Obj) -> Slots:
    """The slots of the objects."""
    return frozenset(get_slot(obj["metadata"]["uid"]) for obj in objects)


async def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)
