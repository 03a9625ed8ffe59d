"""Replicas over a cluster: several of them in one process, by HTTP in memory; who holds what is written down."""

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
from tests.behaviour.connecting import connect_in_memory
from tests.runtimes import make_runtime

pytestmark = [pytest.mark.fastforward, pytest.mark.timeout(30)]

LEASES = "leases.coordination.k8s.io"


class Journal:
    """Who handles what, and a note of what must not be."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.faults: list[str] = []


class Member:
    """One replica with somebody who would handle its objects."""

    def __init__(self, cluster: LocalCluster, journal: Journal, name: str, mode: CoordinationMode) -> None:
        cluster.add_token(name, name)
        self.name = name
        self.journal = journal
        self.slots: Slots = frozenset()
        self.stuck: Slots = frozenset()
        self.states: list[ReplicaState] = []
        self.gaps: list[float] = []
        self.fence = Fence()
        self.runtime = make_runtime()
        settings = self.runtime.settings
        self.vault = Vault(settings)
        self.vault.populate([ConnectionInfo(server=cluster.url, ca_data=cluster.ca_data, token=name)])
        self.runtime = make_runtime(api=APIClient(self.vault, settings))
        coordination = self.runtime.settings.coordination
        coordination.mode, coordination.name, coordination.namespace = mode, "op", "default"
        coordination.identity, coordination.drain_timeout = name, 5
        self.runtime.observer.share_changed = self.states.append  # type: ignore[method-assign, assignment]
        self.runtime.observer.slots_taken = self.gaps.extend  # type: ignore[method-assign, assignment]
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
async def cluster(shared_certificates: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bare=True) as cluster:
        connect_in_memory(cluster, monkeypatch)
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


async def until_done(work: Any) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await work
    return loop.time() - started


async def test_slots_are_shared_and_handed_over(start: Start, journal: Journal) -> None:
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two, three = start("web-2"), start("web-3")
    await until(lambda: sorted(len(m.slots) for m in (one, two, three)) == [85, 85, 86])
    assert await until_done(one.stop()) < 1.5
    assert await until(lambda: two.slots | three.slots == ALL_SLOTS) < 1
    assert not one.gaps  # nobody was before it
    gaps = two.gaps + three.gaps
    assert len(gaps) >= 256
    assert max(gaps) < 1.5
    two.gaps.clear()
    await three.kill()
    assert await until(lambda: two.slots == ALL_SLOTS) < 20
    assert len(two.gaps) == len(ALL_SLOTS) // 2
    assert 13 < min(two.gaps) <= max(two.gaps) < 20


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
    await one.stop()
    assert await until(lambda: two.slots == ALL_SLOTS) < 1
    three = start("web-3")
    await until(lambda: three.states)
    await two.kill()
    assert await until(lambda: three.slots == ALL_SLOTS) < 16
    assert len(two.gaps) == len(three.gaps) == len(ALL_SLOTS)
    assert max(two.gaps) < 1
    assert 13 < min(three.gaps) <= max(three.gaps) < 17.5
    assert [record.message for record in caplog.records if record.name.endswith(".role_change_log")] == [
        "The lease default/op is new: waiting 15 s for old holders to stop.",
        "Leading as web-1: the lease default/op is ours.",
        "Standing by: op is led by web-1.",
        "Handing over 256 slots to the other replicas.",
        "Leading as web-2: the lease default/op is ours.",
        "Standing by: op is led by web-2.",
        "Leading as web-3: the lease default/op is ours.",
    ]


@pytest.mark.parametrize("mode", ["leader"])
async def test_standing_by_is_said_once_if_the_leader_waits_yet(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kopf._coordination.role_change_log")
    one = start("web-1")
    await until(lambda: one.states)
    two = start("web-2")
    await until(lambda: one.slots == ALL_SLOTS)
    await asyncio.sleep(5)
    assert two.states[-1].role == "standby"
    assert caplog.messages == [
        "The lease default/op is new: waiting 15 s for old holders to stop.",
        "Standing by: op is led by web-1.",
        "Leading as web-1: the lease default/op is ours.",
    ]


async def test_slots_are_logged_once_as_they_change(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kopf._coordination.role_change_log")
    await start_pair(start)
    assert [message for message in caplog.messages if message.startswith("Holding")] == [
        "Holding 0 of 256 slots: none.",
        "Holding 256 of 256 slots: 0-255.",
        "Holding 0 of 256 slots: none.",
        "Holding 128 of 256 slots: 0-127.",
        "Holding 128 of 256 slots: 128-255.",
    ]


async def start_pair(start: Start) -> tuple[Member, Member]:
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two = start("web-2")
    await until(lambda: len(one.slots) == len(two.slots) == 128)
    return one, two


@pytest.mark.parametrize("trouble", ["freeze", "partition"])
async def test_a_replica_that_is_cut_off_stops_before_the_others_take_over(
    start: Start, cluster: LocalCluster, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start_pair(start)
    getattr(cluster.faults, trouble)(user="web-1")
    assert 7 <= await until(lambda: not one.slots) <= 10.5
    assert one.fence.is_shut
    assert one.states[-1].is_fenced
    assert "could not be renewed in 10 s; everything is stopped." in caplog.text
    assert 3 <= await until(lambda: two.slots == ALL_SLOTS) <= 10  # the journal tells if this is too early
    cluster.faults.heal()
    await until(lambda: len(one.slots) == len(two.slots) == 128)
    assert not one.states[-1].is_fenced


async def test_what_runs_in_threads_is_not_left_and_the_lease_is_not_released(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await start_pair(start)
    one.stuck = frozenset({min(one.slots)})
    stopping = asyncio.create_task(one.stop())
    assert 9 <= await until_done(stopping) <= 11
    assert two.slots == ALL_SLOTS - one.stuck
    assert "The lease of this replica is not released" in caplog.text
    assert await until(lambda: two.slots == ALL_SLOTS) <= 16


@pytest.mark.parametrize("mode", ["leader", "shards"])
async def test_the_exit_waits_for_an_unreachable_server_until_the_fence_only(
    start: Start, cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    one = start("web-1")
    one.runtime.settings.coordination.drain_timeout = 30
    await until(lambda: one.slots == ALL_SLOTS)
    cluster.faults.freeze(user="web-1")
    await asyncio.sleep(3)
    assert await until_done(one.replicas.leave()) <= 10
    assert one.fence.is_shut
    assert "could not be renewed in 10 s; everything is stopped." in caplog.text
    cluster.faults.heal()


async def test_what_could_not_be_left_in_time_is_never_released(start: Start) -> None:
    """Then, everything is stopped, and nobody can tell if the thread still runs."""
    one, two = await start_pair(start)
    stuck = frozenset({min(one.slots)})
    one.stuck = stuck
    await one.replicas.leave()
    one.stuck = frozenset()
    await asyncio.sleep(30)
    assert two.slots == ALL_SLOTS - stuck
    await one.kill()
    assert 13 < await until(lambda: two.slots == ALL_SLOTS) <= 20


async def test_slots_are_left_as_soon_as_the_thread_has_ended(start: Start) -> None:
    one, two = await start_pair(start)
    one.stuck = frozenset({min(one.slots)})
    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(3)
    one.stuck = frozenset()
    assert await until_done(stopping) <= 2
    assert await until(lambda: two.slots == ALL_SLOTS) <= 1


@pytest.mark.parametrize("mode", ["leader", "shards"])
@pytest.mark.parametrize("number", [0, 1])
async def test_deleted_leases_stop_those_who_lived_by_them(
    start: Start, cluster: LocalCluster, mode: CoordinationMode, number: int
) -> None:
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two = start("web-2")
    await asyncio.sleep(5)
    name = sorted(obj["metadata"]["name"] for obj in cluster.list(LEASES))[number if mode == "shards" else 0]
    cluster.delete(LEASES, name, namespace="default")
    await asyncio.sleep(1)
    await until(lambda: one.slots | two.slots == ALL_SLOTS)  # the journal tells if this is too early


async def test_leases_are_reused(start: Start, cluster: LocalCluster) -> None:
    for number in range(5):
        member = start(f"web-{number}")
        await until(lambda member=member: member.slots == ALL_SLOTS)  # type: ignore[misc]
        await member.stop()
    leases = cluster.list(LEASES)
    assert [obj["metadata"]["name"] for obj in leases] == ["op", "op-0"]
    assert all(not obj["spec"]["holderIdentity"] for obj in leases)
    assert [obj["spec"]["leaseTransitions"] for obj in leases] == [4, 4]


async def test_different_handlers_are_said_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    two = start("web-2")
    two.replicas = Replicas(two.runtime, two, two.fence, handlers="others", version="2.0")
    await two.kill()
    two.start()
    await until(lambda: two.slots)
    await asyncio.sleep(10)
    told = [text for text in caplog.messages if "have different handlers" in text]
    assert len(told) == 2  # by each one
    assert "this one is web-1, another one is web-2 (2.0)" in "".join(told)


async def test_missing_permissions_are_named_once(
    cluster: LocalCluster, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.faults.inject(status=403, resource="leases")
    member = Member(cluster, journal, "web-1", "shards")
    member.start()
    await asyncio.sleep(10)
    (text,) = [text for text in caplog.messages if "Not permitted" in text]
    assert "cannot join its replicas" in text
    assert "get, list, watch, create, patch" in text
    assert not member.states  # it has not joined the others
    assert await until_done(member.stop()) <= 1


def get_place(member: Member) -> tuple[bool, bool, bool]:
    """Whether it is fenced, has joined the others, and has parted from them."""
    return member.states[-1].is_fenced, member.replicas.joined.is_set(), member.replicas.parted.is_set()


@pytest.mark.parametrize("mode", ["leader", "shards"])
@pytest.mark.parametrize("verb", [None, "patch"])
async def test_lost_permissions_fence_a_replica_until_they_are_back(
    start: Start, cluster: LocalCluster, verb: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """If only some verbs are denied, the other requests succeed all the time."""
    one = start("web-1")
    await until(lambda: one.slots == ALL_SLOTS)
    for _ in range(2):
        caplog.clear()
        rule = cluster.faults.inject(status=403, resource="leases", verb=verb)
        cluster.faults.cut_watches()
        assert 7 <= await until(lambda: not one.slots) <= 10.5
        await asyncio.sleep(30)
        assert one.fence.is_shut
        assert get_place(one) == (True, False, True)
        (text,) = [text for text in caplog.messages if "Not permitted" in text]
        assert "cannot stay among its replicas" in text
        assert "get, list, watch, create, patch" in text
        cluster.faults.remove(rule)
        assert await until(lambda: one.slots == ALL_SLOTS) < 5
        assert get_place(one) == (False, True, False)


@pytest.mark.parametrize("mode", ["leader", "shards"])
async def test_an_absent_namespace_is_named_and_the_replica_is_not_ready(
    cluster: LocalCluster, journal: Journal, mode: CoordinationMode, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(cluster, journal, "web-1", mode)
    member.runtime.settings.coordination.namespace = "nowhere"
    member.replicas = Replicas(member.runtime, member, member.fence)
    member.start()
    await asyncio.sleep(10)
    assert len([text for text in caplog.messages if "there is no namespace 'nowhere' for the leases" in text]) == 1
    assert not member.states
    await member.stop()
