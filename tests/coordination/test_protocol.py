"""
The protocol of replicas in worlds full of trouble: see :mod:`tests.coordination.replica_world`.

There are few worlds by default; more by the environment variable ``KOPF_REPLICA_WORLDS``.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis import strategies as st

from kopf._coordination import coordinator
from kopf._coordination.leases import LEADER, SHARDS, Terms
from tests.coordination.replica_world import SLOTS, Network, World

EXAMPLES = int(os.environ.get("KOPF_REPLICA_WORLDS", "20"))
DURATION = 15 / 0.97


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "ALL_SLOTS", SLOTS)


def make_terms(number: int, mode: str) -> Terms:
    return Terms(mode=mode, name="op", identity=f"web-{number}")


def start_all(world: World, modes: list[str]) -> None:
    for number, mode in enumerate(modes):
        world.start(make_terms(number, mode))


def settle(world: World, limit: float = 60) -> None:
    """Wait until everything has an owner, and nothing moves."""
    world.run_until(lambda: world.is_whole, limit)
    assert world.is_whole
    world.run(world.now + 10)


ACTIONS = ("crash", "freeze", "thaw", "cut", "heal", "spoil", "stop", "start", "delete", "slow")


def trouble(world: World, action: str, number: int, value: float) -> None:
    process = world.processes[number % len(world.processes)]
    match action:
        case "crash":
            world.crash(process)
        case "freeze":
            world.freeze(process)
            world.later(value * 40, lambda: world.thaw(process))
        case "thaw":
            world.thaw(process)
        case "cut":
            process.network.is_cut = True
        case "heal":
            process.network.is_cut = False
            process.catch_up()
        case "spoil":
            process.network.delay, process.network.lag, process.network.loss = value * 12, value * 60, value * 0.5
        case "slow":
            process.drain = value * 12
        case "stop":
            world.stop(process)
        case "start":
            # the same pod, or another one, of the one mode or the other
            world.start(make_terms(number, process.replica.terms.mode))
        case "delete":
            if world.store:
                world.delete(sorted(world.store)[number % len(world.store)])


def end_trouble(world: World) -> None:
    for process in world.processes:
        world.thaw(process)
        process.network = Network()
        process.catch_up()
        process.drain = 0.1


troubles = st.lists(
    st.tuples(
        st.floats(0, 12, allow_nan=False), st.sampled_from(ACTIONS), st.integers(0, 6), st.floats(0, 1, allow_nan=False)
    ),
    max_size=14,
)
modes = st.lists(st.sampled_from([SHARDS, LEADER]), min_size=1, max_size=5) | st.integers(1, 5).flatmap(
    lambda n: st.sampled_from([[SHARDS] * n, [LEADER] * n])
)


@hypothesis.settings(max_examples=EXAMPLES, derandomize=EXAMPLES <= 20)
@hypothesis.given(seed=st.integers(0, 2**32), modes=modes, troubles=troubles)
def test_no_slot_is_ever_in_two_hands_and_all_have_owners_in_the_end(
    seed: int, modes: list[str], troubles: list[tuple[float, str, int, float]]
) -> None:
    world = World(seed)
    start_all(world, modes)
    for pause, action, number, value in troubles:
        world.run(world.now + pause)
        trouble(world, action, number, value)
    world.run(world.now + 5)
    end_trouble(world)
    if not world.working:
        world.start(make_terms(9, modes[0]))
    # The worst: a leader has died, and its Lease is deleted, so it is known only by a new one that is new for all.
    took = world.run_until(lambda: world.is_whole, 3 * DURATION)
    assert world.is_whole, f"not whole after {took} s"
    world.run(world.now + 10)
    world.run_until(lambda: world.is_balanced, 2 * DURATION)  # what comes and goes late, is divided late
    assert world.is_balanced


@hypothesis.settings(max_examples=EXAMPLES, derandomize=EXAMPLES <= 20)
@hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(1, 5), mode=st.sampled_from([SHARDS, LEADER]))
def test_everything_has_an_owner_soon_after_a_crash(seed: int, count: int, mode: str) -> None:
    world = World(seed)
    start_all(world, [mode] * count)
    settle(world)
    world.run(world.now + world.random.random() * 4)
    victims = world.random.sample(world.processes, world.random.randint(1, count))
    for victim in victims:
        world.crash(victim)
        if world.random.random() < 0.5 or len(victims) == count:
            world.start(victim.replica.terms)
    assert world.run_until(lambda: world.is_whole, DURATION + 5) <= DURATION + 5


@hypothesis.settings(max_examples=EXAMPLES, derandomize=EXAMPLES <= 20)
@hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(2, 5), mode=st.sampled_from([SHARDS, LEADER]))
def test_everything_has_an_owner_at_once_after_a_graceful_stop(seed: int, count: int, mode: str) -> None:
    world = World(seed)
    start_all(world, [mode] * count)
    settle(world)
    world.run(world.now + world.random.random() * 4)
    victim = world.random.choice(world.processes)
    world.stop(victim)
    assert world.run_until(lambda: victim.replica.is_out, 2) < 1.0
    assert world.run_until(lambda: world.is_whole, 2) < 1.0


@pytest.mark.parametrize("mode", [SHARDS, LEADER])
def test_rolling_updates_leave_nothing_without_an_owner_for_long(mode: str) -> None:
    world = World(1)
    start_all(world, [mode] * 3)
    settle(world)
    last_seen = dict.fromkeys(SLOTS, world.now)
    for number, old in enumerate(list(world.processes)):
        world.start(make_terms(10 + number, mode))
        for moment in range(200):
            if moment == 100:
                world.stop(old)
            world.run(world.now + 0.05)
            last_seen |= dict.fromkeys(world.owners, world.now)
            assert world.now - min(last_seen.values()) < 1
    assert len(world.working) == 3
    assert world.is_balanced


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_shares_are_equal_and_little_moves_when_a_replica_comes_or_goes(count: int) -> None:
    world = World(count)
    start_all(world, [SHARDS] * count)
    settle(world)
    assert max(world.shares) - min(world.shares) <= 1
    before = world.moves
    added = world.start(make_terms(count, SHARDS))
    world.run(world.now + 10)
    assert max(world.shares) - min(world.shares) <= 1
    assert 0 < world.moves - before <= len(SLOTS) // (count + 1) + 1
    before, share = world.moves, len(added.hands)
    world.stop(added)
    world.run(world.now + 10)
    assert world.moves - before == share


def test_it_costs_one_renewal_per_replica_and_another_one_for_the_coordinator() -> None:
    world = World(1)
    start_all(world, [SHARDS] * 4)
    settle(world)
    before = world.writes
    world.run(world.now + 100)
    assert world.writes - before == pytest.approx(5 * 50, rel=0.1)


def test_standbys_of_a_leader_write_nothing() -> None:
    world = World(1)
    start_all(world, [LEADER] * 4)
    settle(world)
    before = world.writes
    world.run(world.now + 100)
    assert world.writes - before == pytest.approx(50, rel=0.1)
    assert len(world.store) == 1


def test_restarted_and_replaced_replicas_use_the_same_leases() -> None:
    world = World(1)
    start_all(world, [SHARDS] * 3)
    settle(world)
    for number in range(10, 20):
        old = world.working[0]
        world.start(make_terms(number, SHARDS))
        world.run(world.now + 5)
        world.stop(old)
        world.run(world.now + 5)
    assert len(world.store) <= 5


def test_replicas_that_crash_again_and_again_do_not_litter() -> None:
    world = World(1)
    for _ in range(20):
        process = world.start(make_terms(1, SHARDS))
        world.run(world.now + 10)
        world.crash(process)
    assert len(world.store) <= 2


def test_two_processes_of_one_name_live_side_by_side() -> None:
    world = World(1)
    start_all(world, [SHARDS])
    settle(world)
    world.start(make_terms(0, SHARDS))
    world.run(world.now + 10)
    assert world.shares == [4, 4]
