"""
Replicas in random trouble, whole operators in virtual time: they are killed, frozen, cut off, skewed, stopped, and
scaled, while objects come, change, and go.

What must hold, whatever happens: no object is in two hands; all objects are in one hand soon after the last trouble, as
long as a single replica is well; every change is handled. There are few stories by default; 500 in ``make replicas``.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, defaultdict
from typing import Any, Literal

import hypothesis
import pytest
from hypothesis import strategies as st

import kopf
from kopf._testing.simulated_replicas import Replica, Replicas
from kopf.testing import SyncSimulation
from tests.testing.kopfexamples import CRD, make

STORIES = int(os.environ.get("KOPF_REPLICA_STORIES", "0"))
MOST_REPLICAS = 4
OBJECTS = 6
INTERVAL = 1.0
"""How often the owner of an object calls its timer, in seconds."""
ORPHANED = 15 + 5
"""For how long an object can be in no hand after the last trouble, in seconds: the duration of a Lease, and a while."""

REPLICAS = st.integers(0, MOST_REPLICAS - 1)
NAMES = st.sampled_from("abcdefgh")
TIMES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 9.9, 10.1, 14.0, 16.0, 30.0])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["kill", "freeze", "partition", "start", "stop", "thaw", "heal"]), REPLICAS),
    st.tuples(st.just("skew_clock"), REPLICAS, st.sampled_from([-3600.0, -20.0, 20.0, 3600.0])),
    st.tuples(st.just("scale"), st.integers(1, MOST_REPLICAS)),
    st.tuples(st.sampled_from(["apply", "apply", "delete"]), NAMES),
    st.tuples(st.just("slow"), NAMES, st.sampled_from([1.0, 4.0, 12.0])),
)
FAILOVERS = [
    ("leader", "kill", 15 + 1),
    ("leader", "stop", 1),
    ("shards", "kill", ORPHANED),
    ("shards", "freeze", ORPHANED),
    ("shards", "partition", ORPHANED),
    ("shards", "stop", 1),
]
"""How long an object can be in no hand after one trouble, in seconds; nothing has to be waited for in handlers."""
STORY = st.lists(st.tuples(TIMES, STEPS), min_size=3, max_size=14)


class Life:
    """One story, as it goes on."""

    def __init__(self, mode: Literal["leader", "shards"]) -> None:
        self.ticks: dict[str, list[str]] = defaultdict(list)
        """Which replicas have called the timer of which object, since somebody looks."""
        self.versions: dict[str, int] = {}
        """What the objects are now that exist, if nobody has lost a change."""
        self.bearers: Counter[str] = Counter()
        """How many objects had the name before: each one is called differently, as deletions take a while."""
        self.mode = mode
        self.registry = kopf.OperatorRegistry()
        self._declare()

    def _declare(self) -> None:
        registry = self.registry

        @kopf.on.startup(registry=registry)
        async def remember_name(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
            memo.replica = settings.coordination.identity

        @kopf.on.create("kopfexamples", registry=registry, id="handle")
        @kopf.on.update("kopfexamples", registry=registry, id="handle")
        @kopf.on.resume("kopfexamples", registry=registry, id="handle")
        async def handle(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
            await asyncio.sleep(spec.get("delay", 0.2))
            patch.status["seen"] = spec["version"]

        @kopf.on.delete("kopfexamples", registry=registry, id="finish")
        async def finish(**_: Any) -> None:
            await asyncio.sleep(0.2)

        @kopf.timer("kopfexamples", interval=INTERVAL, registry=registry, id="tick")
        async def tick(name: str, memo: kopf.Memo, **_: Any) -> None:
            self.ticks[name].append(memo.replica)

        @kopf.daemon("kopfexamples", registry=registry, id="stay")
        async def stay(stopped: Any, **_: Any) -> None:
            await stopped.wait()

    def tell(self, story: list[tuple[float, tuple[Any, ...]]], seed: int, is_sharded: bool) -> None:
        gates = {"ShardedListAndWatch": is_sharded}
        with SyncSimulation(
            registry=self.registry, crds=CRD, operator=False, seed=seed, feature_gates=gates
        ) as simulation:
            replicas = simulation.replicas(3, self.mode)
            simulation.advance(seconds=5)
            for pause, step in story:
                simulation.advance(seconds=pause)
                self._do(simulation, replicas, *step)
            if not any(is_well(replica) for replica in replicas):
                for replica in replicas:
                    replica.thaw()
                    replica.heal()
                simulation.run(replicas.scale(len(replicas)))
            self._check_owners(simulation, replicas)
            simulation.advance(seconds=60)
            seen = {
                obj["metadata"]["name"]: obj.get("status", {}).get("seen") for obj in simulation.list("kopfexamples")
            }
            assert seen == self.versions, simulation.journal
            replicas.assert_one_owner()

    def _do(self, simulation: SyncSimulation, replicas: Replicas, kind: str, *args: Any) -> None:
        match kind, *args:
            case "apply" | "slow", name, *delay:
                name = f"{name}{self.bearers[name]}"
                self.versions[name] = version = self.versions.get(name, 0) + 1
                simulation.apply(make(name, version=version, delay=delay[0] if delay else 0.2))
            case "delete", name:
                if self.versions.pop(f"{name}{self.bearers[name]}", None) is not None:
                    simulation.delete("kopfexamples", f"{name}{self.bearers[name]}")
                    self.bearers[name] += 1
            case "scale", count:
                for replica in [*replicas][count:]:
                    if replica.is_stuck:  # it would not exit in time, and be killed
                        replica.kill()
                simulation.run(replicas.scale(count))
            case _, index, *values if index < len(replicas):
                replica = replicas[index]
                if kind == "start" and not replica.is_running:
                    simulation.run(replica.start())
                elif kind == "stop" and not replica.is_stuck:
                    simulation.run(replica.stop())
                elif kind not in ("start", "stop"):
                    getattr(replica, kind)(*values)

    def _check_owners(self, simulation: SyncSimulation, replicas: Replicas) -> None:
        """Each object has an owner, who calls the timer every second."""
        simulation.advance(seconds=ORPHANED)
        self.ticks.clear()
        simulation.advance(seconds=3)
        orphans = [name for name in self.versions if not self.ticks[name]]
        assert not orphans, f"{orphans}\n{simulation.journal}"
        replicas.assert_one_owner()


@pytest.fixture(autouse=True)
def _quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journals have all messages; otherwise, pytest would format each of them twice."""
    if "caplog" not in request.fixturenames:
        monkeypatch.setattr(logging.getLogger("kopf"), "propagate", False)


def is_well(replica: Replica) -> bool:
    return replica.is_running and not replica.is_stuck


@pytest.mark.timeout(0 if STORIES else 300)
@pytest.mark.parametrize("mode", ["leader", "shards"])
def test_no_object_is_in_two_hands_or_lost(mode: Literal["leader", "shards"]) -> None:
    @hypothesis.given(story=STORY, seed=st.integers(0, 3), is_sharded=st.booleans())
    @hypothesis.settings(
        max_examples=STORIES or 2,
        derandomize=not STORIES,
        database=None,
        deadline=None,
        suppress_health_check=[*hypothesis.HealthCheck],
        phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
    )
    def tell(story: list[tuple[float, tuple[Any, ...]]], seed: int, is_sharded: bool) -> None:
        Life(mode).tell(story, seed, is_sharded)

    tell()


def test_a_thawed_leader_finds_the_fence_shut_before_it_calls_anything() -> None:
    """It handles the events that came while it was frozen, and only then learns that it was frozen."""
    story = [(10.1, ("kill", 1)), (1.0, ("freeze", 0)), (16.0, ("apply", "a")), (0.0, ("thaw", 0))]
    Life("leader").tell(story, 0, False)


@pytest.mark.parametrize(("mode", "trouble", "longest"), FAILOVERS)
def test_objects_are_not_orphaned_for_long(
    mode: Literal["leader", "shards"], trouble: Literal["kill", "freeze", "partition", "stop"], longest: float
) -> None:
    """From the last tick of the former owner to the first one of the next."""
    life = Life(mode)
    with SyncSimulation(registry=life.registry, crds=CRD, operator=False) as simulation:
        replicas = simulation.replicas(3, mode)
        for number in range(OBJECTS):
            simulation.apply(make(f"obj{number}", version=1))
        simulation.advance(seconds=20)
        owner = replicas[simulation.journal.get_calls("tick")[-1].replica]
        owned = {call.name for call in simulation.journal.get_calls("tick", replica=owner.name)}
        simulation.run(owner.stop()) if trouble == "stop" else getattr(owner, trouble)()
        simulation.advance(seconds=30)
        for name in owned:
            calls = simulation.journal.get_calls("tick", name=name)
            last = max(call.time for call in calls if call.replica == owner.name)
            first = min(call.time for call in calls if call.replica != owner.name and call.time > last)
            assert first - last <= longest + INTERVAL
        replicas.assert_one_owner()


@pytest.mark.parametrize(("former", "next_"), [("leader", "shards"), ("shards", "leader"), ("shards", "shards")])
def test_rolling_updates(former: Literal["leader", "shards"], next_: Literal["leader", "shards"]) -> None:
    """The new ones start while the old ones work; these are stopped one by one."""
    life = Life(former)
    with SyncSimulation(registry=life.registry, crds=CRD, operator=False) as simulation:
        old = simulation.replicas(2, former, name="old")
        for number in range(OBJECTS):
            simulation.apply(make(f"obj{number}", version=1))
        simulation.advance(seconds=30)
        new = simulation.replicas(1, next_, name="new")
        for count in (2, 3):
            simulation.advance(seconds=5)
            simulation.run(old[count - 2].stop())
            simulation.run(new.scale(count))
            simulation.patch("kopfexamples", f"obj{count}", {"spec": {"version": count}})
        simulation.advance(seconds=1)
        life.ticks.clear()
        simulation.advance(seconds=3)
        assert {name for names in life.ticks.values() for name in names} <= {"new-0", "new-1", "new-2"}
        assert len(life.ticks) == OBJECTS
        new.assert_one_owner()
        for number in range(OBJECTS):
            expected = number if number in (2, 3) else 1
            assert simulation.get("kopfexamples", f"obj{number}")["status"]["seen"] == expected
        creations = simulation.journal.get_calls("handle", reason="create")
        assert len(creations) == OBJECTS


def test_an_update_from_one_operator_alone() -> None:
    """That one is stopped before."""
    life = Life("shards")
    with SyncSimulation(registry=life.registry, crds=CRD, operator=False) as simulation:
        alone = simulation.replicas(
            1, name="alone", configure=lambda settings: setattr(settings.peering, "standalone", True)
        )
        for number in range(OBJECTS):
            simulation.apply(make(f"obj{number}", version=1))
        simulation.advance(seconds=10)
        simulation.run(alone.stop())
        replicas = simulation.replicas(2, "shards")
        simulation.advance(seconds=30)
        assert len(simulation.journal.get_calls("handle", reason="create")) == OBJECTS
        resumed = simulation.journal.get_calls("handle", reason="resume")
        assert len({call.name for call in resumed}) == OBJECTS
        assert {call.replica for call in resumed} == {"replica-0", "replica-1"}
        simulation.run(replicas.stop())
        simulation.run(alone.scale(1))
        simulation.patch("kopfexamples", "obj5", {"spec": {"version": 2}})
        simulation.expect("kopfexamples", "obj5", field="status.seen", value=2)
        alone.assert_one_owner()


def test_a_leader_that_was_frozen_stands_by_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is not said to be fenced, i.e. not to be ready, until it leads again."""
    caplog.set_level(logging.INFO, logger="kopf._coordination")
    life = Life("leader")
    with SyncSimulation(registry=life.registry, crds=CRD, operator=False) as simulation:
        replicas = simulation.replicas(2, "leader")
        simulation.advance(seconds=20)
        leader = next(replica for replica in replicas if f"Leading as {replica.name}" in caplog.text)
        leader.freeze()
        simulation.advance(seconds=20)
        caplog.clear()
        leader.thaw()
        simulation.advance(seconds=5)
        assert [message for message in caplog.messages if "Fenced" in message or "Standing by" in message] == [
            "Fenced: the lease kopf could not be renewed in 10 s; everything is stopped.",
            f"Standing by: kopf is led by {({*(r.name for r in replicas)} - {leader.name}).pop()}.",
        ]
