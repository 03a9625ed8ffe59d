"""Replicas that take part in a peering, too: to take over from an operator with peering, and to give back to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pytest

import kopf
from kopf.testing import SyncSimulation
from tests.behaviour.peerings import CRDS
from tests.behaviour.test_replica_stories import Life
from tests.behaviour.test_replica_stories import _quiet as _quiet
from tests.testing.kopfexamples import CRD, make

Mode = Literal["leader", "shards"]
NAMES = [f"obj{number}" for number in range(4)]
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
both_modes = pytest.mark.parametrize("mode", ["leader", "shards"])


def peering(priority: int) -> Callable[[kopf.OperatorSettings], None]:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings.peering.mandatory = True
        settings.peering.priority = priority

    return configure


class Story:
    """Objects that are handled all the time, by whoever works."""

    def __init__(self, simulation: SyncSimulation, life: Life) -> None:
        self._simulation = simulation
        self._life = life
        self._version = 0
        simulation.apply(PEERING)

    def see_workers(self, seconds: float = 3) -> set[str]:
        """Let each object change, be handled once, and be in one hand all the time; tell in whose hands they are."""
        self._version += 1
        for name in NAMES:
            self._simulation.apply(make(name, version=self._version))
        self._simulation.advance(seconds=2)
        self._life.ticks.clear()
        self._simulation.advance(seconds=seconds)
        ticks = self._life.ticks
        assert all(len({*ticks[name]}) == 1 and len(ticks[name]) >= seconds - 1 for name in NAMES), ticks
        calls = self._simulation.journal.get_calls("handle")
        for reason, count in (("create", 1), ("update", self._version - 1)):
            assert sum(call.reason == reason for call in calls) == count * len(NAMES)
        return {name.rpartition("-")[0] for names in ticks.values() for name in names}


@pytest.fixture
def life() -> Life:
    return Life("shards")


@pytest.fixture
def simulation(life: Life) -> Iterator[SyncSimulation]:
    with SyncSimulation(registry=life.registry, crds=[CRD, CRDS], operator=False) as simulation:
        yield simulation


@pytest.fixture
def story(simulation: SyncSimulation, life: Life) -> Story:
    return Story(simulation, life)


@both_modes
def test_from_an_operator_and_back(simulation: SyncSimulation, story: Story, mode: Mode) -> None:
    old = simulation.replicas(1, name="old", configure=peering(5))
    assert story.see_workers() == {"old"}
    new = simulation.replicas(2, mode, name="new", configure=peering(10))
    simulation.advance(seconds=20)
    assert story.see_workers(60) == {"new"}
    simulation.run(new.scale(3))
    simulation.run(new[0].stop())  # as in a rolling update
    assert story.see_workers() == {"new"}
    simulation.run(old.stop())
    assert story.see_workers() == {"new"}
    back = simulation.replicas(1, name="back", configure=peering(20))
    simulation.advance(seconds=5)  # in the first moment, two peers can work at once
    assert story.see_workers() == {"back"}
    simulation.run(new.stop())
    assert story.see_workers() == {"back"}
    back.assert_one_owner()
    status = simulation.get("clusterkopfpeerings", "default")["status"]
    assert {*status} == {"back-0"}


@both_modes
def test_those_who_were_paused_go_on_as_soon_as_all_replicas_are_gone(
    simulation: SyncSimulation, story: Story, mode: Mode
) -> None:
    simulation.replicas(1, name="old", configure=peering(5))
    new = simulation.replicas(3, mode, name="new", configure=peering(10))
    simulation.advance(seconds=20)
    assert story.see_workers() == {"new"}
    simulation.run(new.stop())  # all at once
    assert story.see_workers() == {"old"}
    new.assert_one_owner()


def test_groups_of_one_name_are_different_peers(simulation: SyncSimulation, story: Story) -> None:
    for namespace in ("one", "two"):
        simulation.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    def settle(namespace: str, priority: int) -> Callable[[kopf.OperatorSettings], None]:
        def configure(settings: kopf.OperatorSettings) -> None:
            peering(priority)(settings)
            settings.coordination.namespace = namespace

        return configure

    one = simulation.replicas(2, "shards", name="one", configure=settle("one", 5))
    simulation.advance(seconds=20)
    assert story.see_workers() == {"one"}
    simulation.replicas(2, "shards", name="two", configure=settle("two", 10))
    simulation.advance(seconds=20)
    assert story.see_workers() == {"two"}
    one.assert_one_owner()


def test_priorities_that_are_raised_by_a_rolling_update(simulation: SyncSimulation, story: Story) -> None:
    simulation.replicas(1, name="other", configure=peering(15))
    simulation.replicas(2, "shards", name="new", configure=peering(10))
    simulation.advance(seconds=20)
    assert story.see_workers() == {"other"}
    higher = simulation.replicas(1, "shards", name="higher", configure=peering(20))
    simulation.advance(seconds=5)
    assert story.see_workers(20) == {"new", "higher"}
    higher.assert_one_owner()


@both_modes
def test_replicas_that_cannot_join_pause_nobody(simulation: SyncSimulation, story: Story, mode: Mode) -> None:
    simulation.replicas(1, name="old", configure=peering(5))
    simulation.cluster.faults.inject(403, resource="leases")
    simulation.replicas(2, mode, name="new", configure=peering(10))
    assert story.see_workers(20) == {"old"}
    simulation.cluster.faults.clear()
    simulation.advance(seconds=90)
    assert story.see_workers() == {"new"}


@both_modes
def test_replicas_that_lose_their_permissions_pause_nobody_until_they_are_back(
    simulation: SyncSimulation, story: Story, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    simulation.replicas(1, name="old", configure=peering(5))
    new = simulation.replicas(2, mode, name="new", configure=peering(10))
    simulation.advance(seconds=20)
    assert story.see_workers() == {"new"}
    simulation.cluster.faults.inject(403, resource="leases")
    simulation.advance(seconds=25)
    assert story.see_workers(20) == {"old"}
    status = simulation.get("clusterkopfpeerings", "default")["status"]
    assert {*status} == {"old-0"}
    told = [text for text in caplog.messages if "Not permitted to access leases" in text]
    assert len(told) == 2  # by each one
    assert all("cannot stay among its replicas" in text for text in told)
    simulation.cluster.faults.clear()
    simulation.advance(seconds=20)
    assert story.see_workers() == {"new"}
    new.assert_one_owner()
