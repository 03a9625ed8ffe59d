"""Replicas over a cluster: several of them in one process, by real HTTP; who holds what is written down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.fencing import Fence
from kopf._client.http.api import APIClient
from kopf._coordination.replicas import Replicas
from kopf._settings.coordination import CoordinationMode
from kopf._values.replica_state import ReplicaState
from kopf._values.slots import ALL_SLOTS, Slots
from kopf_cluster import LocalCluster
from tests.runtimes import make_runtime

pytestmark = [pytest.mark.fastforward, pytest.mark.timeout(30)]

LEASES = ("coordination.k8s.io/v1", "leases")


class Journal:
    """Who handles what, and a note of what must not be."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.faults: list[str] = []


class Member:
    """One replica with somebody who would handle its objects."""

    def __init__(self, cluster: LocalCluster, journal: Journal, name: str, mode: CoordinationMode) -> None:
        self.name = name
        self.journal = journal
        self.slots: Slots = frozenset()
        self.stuck: Slots = frozenset()
        self.states: list[ReplicaState] = []
        self.fence = Fence()
        self.runtime = make_runtime()
        settings = self.runtime.settings
        self.vault = Vault(settings)
        self.vault.populate([ConnectionInfo(server=cluster.url, ca_data=cluster.ca_data, token=cluster.token)])
        self.runtime = make_runtime(api=APIClient(self.vault, settings))
        coordination = self.runtime.settings.coordination
        coordination.mode, coordination.name, coordination.namespace = mode, "op", "default"
        coordination.identity, coordination.drain_timeout = name, 5
        self.runtime.observer.share_changed = self.states.append  # type: ignore[method-assign, assignment]
        self.replicas = Replicas(self.runtime, self, self.fence, handlers="same")
        self.running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.running = asyncio.create_task(self.replicas.run())

    def take_over(self, slots: Slots) -> None:
        if self.fence.is_shut:
            self.journal.faults.append(f"{self.name} takes {slots} behind the fence")
        if others := {self.journal.owners[slot] for slot in slots & self.journal.owners.keys()}:
            self.journal.faults.append(f"{self.name} takes what {others} have")
        self.journal.owners.update(dict.fromkeys(slots, self.name))
        self.slots |= slots

    async def hand_over(self, slots: Slots, timeout: float) -> Slots:
        await asyncio.sleep(0.1)
        self._forget(slots - self.stuck)
        return slots & self.stuck

    async def give_up(self) -> None:
        self._forget(self.slots)

    def _forget(self, slots: Slots) -> None:
        self.slots -= slots
        for slot in slots:
            self.journal.owners.pop(slot, None)

    async def kill(self) -> None:
        assert self.running is not None
        self.running.cancel()
        await asyncio.wait([self.running])
        self._forget(self.slots)  # nothing runs anymore

    async def stop(self) -> None:
        await self.replicas.leave()
        await self.kill()
        await self.vault.close()


Start = Callable[[str], Member]


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def mode() -> CoordinationMode:
    return "shards"


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    journal = Journal()
    yield journal
    assert not journal.faults


@pytest.fixture
async def start(cluster: LocalCluster, journal: Journal, mode: CoordinationMode) -> AsyncIterator[Start]:
    members: list[Member] = []

    def start(name: str) -> Member:
        members.append(member := Member(cluster, journal, name, mode))
        member.start()
        return member

    yield start
    for member in members:
        await member.kill()
        await member.vault.close()


async def until(condition: Callable[[], object], patience: float = 60.0) -> float:
    """Wait for the condition; tell how long it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.2)
    return loop.time() - started


async def test_slots_are_shared_and_handed_over(start: Start, journal: Journal) -> None:
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two, three = start("web-2"), start("web-3")
    await until(lambda: sorted(len(m.slots) for m in (one, two, three)) == [85, 85, 86])
    assert await until_done(one.stop()) < 1.5
    assert await until(lambda: two.slots | three.slots == ALL_SLOTS) < 1
    await three.kill()
    assert await until(lambda: two.slots == ALL_SLOTS) < 20


async def until_done(work: Any) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await work
    return loop.time() - started


@pytest.mark.parametrize("mode", ["leader"])
async def test_one_leads_and_the_others_stand_by(
    start: Start, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two = start("web-2")
    await until(lambda: two.states)
    assert [state.role for state in (one.states[-1], two.states[-1])] == ["leader", "standby"]
    assert "Leading as web-1: the lease default/op is ours." in caplog.messages
    assert "Standing by: op is led by web-1." in caplog.messages
    await one.stop()
    assert await until(lambda: two.slots == ALL_SLOTS) < 1
    three = start("web-3")
    await until(lambda: three.states)
    await two.kill()
    assert await until(lambda: three.slots == ALL_SLOTS) < 16
