"""Trouble: each kind of it does what it says, to the operator only, unless it is told whom to hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation
from tests.testing.kopfexamples import CRD, make

registry = kopf.OperatorRegistry()
pytestmark = pytest.mark.simulation(crds=CRD, registry=registry)
MINE = {"mine": ""}
seen: list[tuple[str, str]] = []
"""What the operator was told of: how, and of which object."""


@kopf.on.create("kopfexamples", registry=registry)
@kopf.on.update("kopfexamples", registry=registry)
async def change_fn(patch: kopf.Patch, **_: Any) -> None:
    patch.status["handled"] = patch.status.get("handled", 0) + 1


@kopf.on.create("kopfexamples", labels=MINE, registry=registry)
async def append_fn(patch: kopf.Patch, **_: Any) -> None:
    patch.fns.append(lambda body: body.setdefault("spec", {}).update(size=1))


@kopf.on.event("configmaps", labels=MINE, registry=registry)
@kopf.on.event("secrets", labels=MINE, registry=registry)
@kopf.on.event("kopfexamples", registry=registry)
async def event_fn(type: str, name: str, **_: Any) -> None:
    seen.append((type, name))


@pytest.fixture(autouse=True)
def _nothing_is_seen_yet() -> None:
    seen.clear()


async def live(simulation: Simulation, name: str = "obj", within: float = 60, labels: Any = None) -> float:
    """Create an object and wait until it is handled; tell how long it took."""
    since = simulation.now
    await simulation.apply({**make(name), "metadata": {"name": name, "labels": labels or {}}})
    await simulation.expect("kopfexamples", name, field="status.handled", value=1, within=within)
    return simulation.now - since


def count_requests(simulation: Simulation, code: int, user: str | None = None) -> int:
    return len(
        [entry for entry in simulation.cluster.audit if entry.code == code and entry.user == (user or simulation.user)]
    )


async def test_requests_fail(simulation: Simulation) -> None:
    simulation.faults.fail("patch", "kopfexamples/status", status=503, times=2)
    assert await live(simulation) >= 2
    assert count_requests(simulation, 503) == 2
    await simulation.patch("kopfexamples", "obj", {"spec": {"size": 1}})  # users are not hit


async def test_requests_fail_by_methods_and_for_everybody(simulation: Simulation) -> None:
    simulation.faults.fail("PATCH", status=500, user="*", times=1)
    await live(simulation)
    assert count_requests(simulation, 500) == 1
    await simulation.patch("kopfexamples", "obj", {"spec": {"size": 1}})  # the test is never hit


async def test_answers_are_lost(simulation: Simulation) -> None:
    simulation.faults.lose("patch", "kopfexamples/status", times=1)
    await live(simulation)
    await simulation.advance(seconds=10)
    patches = [write for write in simulation.journal.get_writes(simulation.user) if write.name == "obj"]
    assert patches  # it is done
    assert simulation.writes > len(patches)  # and it was requested again


async def test_connections_break(simulation: Simulation) -> None:
    simulation.faults.disconnect("patch", times=1)
    assert await live(simulation) >= 1
    assert simulation.writes == len(simulation.journal.get_writes(simulation.user)) + 1


async def test_requests_are_slow(simulation: Simulation) -> None:
    simulation.faults.latency(5, "patch", "kopfexamples/status")
    assert await live(simulation) == pytest.approx(5, abs=1.5)


async def test_permissions_are_taken_away(simulation: Simulation) -> None:
    simulation.faults.forbid("patch", "kopfexamples/status")
    with pytest.raises(AssertionError, match="status.handled is absent"):
        await live(simulation, within=10)
    assert count_requests(simulation, 403) > 0


async def test_conflicts(simulation: Simulation) -> None:
    simulation.faults.conflict("kopfexamples")
    await live(simulation, labels=MINE)
    await simulation.expect("kopfexamples", "obj", field="spec.size", value=1)
    assert count_requests(simulation, 409) + count_requests(simulation, 422) == 1


@pytest.mark.parametrize("clean", [True, False])
async def test_watches_are_dropped(simulation: Simulation, clean: bool) -> None:
    await live(simulation)
    before = count_watches(simulation)
    simulation.faults.drop_watch(clean=clean)
    await simulation.advance(seconds=5)
    assert count_watches(simulation) > before
    await live(simulation, "other")


def count_watches(simulation: Simulation) -> int:
    return sum(
        count
        for (verb, name, _), count in simulation.cluster.counters.items()
        if (verb, name) == ("watch", "kopfexamples")
    )


async def test_watches_are_dropped_periodically(simulation: Simulation) -> None:
    await live(simulation)
    before = count_watches(simulation)
    simulation.faults.drop_watch(every=10)
    await simulation.advance(seconds=55)
    assert count_watches(simulation) - before >= 5
    simulation.faults.clear()
    await simulation.advance(seconds=5)
    before = count_watches(simulation)
    await simulation.advance(seconds=50)
    assert count_watches(simulation) == before


async def test_stale_views(simulation: Simulation) -> None:
    await simulation.settle()
    simulation.faults.stale_view(30)
    assert await live(simulation) == pytest.approx(30, abs=2)


async def test_watches_lag(simulation: Simulation) -> None:
    await simulation.settle()
    simulation.faults.lag(3)
    assert await live(simulation) == pytest.approx(3, abs=0.5)
    simulation.faults.clear()
    assert await live(simulation, "other") < 3


async def test_kinds_are_reordered(simulation: Simulation) -> None:
    simulation.faults.reorder(10)
    names = []
    for n in range(10):
        for kind in ("ConfigMap", "Secret"):
            names.append(f"{kind.lower()}{n}")
            await simulation.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": names[-1], "labels": MINE}})
        await simulation.advance(seconds=1)
    await simulation.settle(calm=15)
    told = [name for _, name in seen]
    assert sorted(told) == sorted(names)
    assert told != names


async def test_events_come_twice(simulation: Simulation) -> None:
    await simulation.settle()
    simulation.faults.lag(0.5)
    simulation.faults.duplicate_events()
    await live(simulation)
    await simulation.settle()
    assert len(simulation.journal.get_calls(reason="create")) == 1
    assert set(seen) == {("ADDED", "obj"), ("MODIFIED", "obj")}


async def test_history_expires(simulation: Simulation) -> None:
    await live(simulation)
    await simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "another-change"}})
    simulation.faults.expire()
    await simulation.advance(seconds=1)
    assert "WATCH /apis/kopf.dev/v1/kopfexamples: 410 Expired" in simulation.logs
    await live(simulation, "other")


async def test_partitions(simulation: Simulation) -> None:
    await simulation.settle()
    simulation.faults.partition(30)
    assert await live(simulation) >= 30
    assert [call.name for call in simulation.journal.get_calls("change_fn")] == ["obj"]
    simulation.faults.partition()
    await simulation.apply(make("other"))
    await simulation.advance(minutes=10)
    assert [call.name for call in simulation.journal.get_calls("change_fn")] == ["obj"]
    simulation.faults.clear()
    await simulation.expect("kopfexamples", "other", field="status.handled", value=1)


@pytest.mark.parametrize("keep_data", [True, False])
async def test_the_cluster_restarts(simulation: Simulation, keep_data: bool) -> None:
    await live(simulation)
    simulation.faults.restart_cluster(keep_data=keep_data)
    await simulation.advance(seconds=10)
    assert (await simulation.find("crd", "kopfexamples.kopf.dev") is not None) is keep_data
    if not keep_data:
        await simulation.apply(CRD)
        await simulation.advance(seconds=60)
    await live(simulation, "other", within=600)


async def test_other_users_are_hit_if_named(simulation: Simulation) -> None:
    simulation.faults.fail("patch", status=500, user="alice")
    await live(simulation)
    assert count_requests(simulation, 500) == 0


async def test_the_share_of_requests(simulation: Simulation) -> None:
    simulation.faults.fail("patch", rate=0.5)
    for n in range(10):
        await live(simulation, f"obj{n}", within=600)
    assert 1 <= count_requests(simulation, 500) <= 40


async def test_rules_can_be_removed(simulation: Simulation) -> None:
    rule = simulation.faults.fail("patch", status=403)
    simulation.cluster.faults.remove(rule)
    await live(simulation)


MAKERS: list[Callable[[Any], Any]] = [
    lambda faults: faults.fail(),
    lambda faults: faults.lose(),
    lambda faults: faults.disconnect(),
    lambda faults: faults.latency(1),
    lambda faults: faults.forbid(),
    lambda faults: faults.conflict(),
    lambda faults: faults.drop_watch(every=5),
    lambda faults: faults.stale_view(),
    lambda faults: faults.lag(1),
    lambda faults: faults.reorder(),
    lambda faults: faults.duplicate_events(),
    lambda faults: faults.expire(),
    lambda faults: faults.partition(),
    lambda faults: faults.clock_jump(5),
]


@pytest.mark.parametrize("n", range(len(MAKERS)))
async def test_all_trouble_is_noted_and_can_be_ended(simulation: Simulation, n: int) -> None:
    await simulation.settle()
    before = len(simulation.journal)
    MAKERS[n](simulation.faults)
    assert len(simulation.journal) == before + 1
    simulation.faults.clear()
    await live(simulation)
