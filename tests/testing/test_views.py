"""Single events of the operator's watches: late, twice, or followed by the past; counted, noted, and waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, SyncSimulation
from tests.testing.kopfexamples import CRD

Seen = list[tuple[str, str, int]]


def make(kind: str, name: str, size: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"mine": ""}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"size": size}}


@pytest.fixture
def seen() -> Seen:
    """What the operator has seen: of which object, which size, and when."""
    return []


async def start(simulation: Simulation, seen: Seen) -> None:
    """Start the operator that sees it."""
    for resource in ("configmaps", "secrets"):

        @kopf.on.event(resource, labels={"mine": ""}, id=resource)
        async def look(type: str, name: str, body: kopf.Body, **_: Any) -> None:
            seen.append((f"{type} {name}", body["data"]["size"], round(simulation.now)))

    await simulation.restart()
    await simulation.advance()


async def tell(simulation: Simulation, seen: Seen, trouble: Callable[[Any], object]) -> None:
    """Start the operator, make the trouble, and tell a story of 5 events."""
    await start(simulation, seen)
    trouble(simulation.faults)
    await simulation.apply(make("ConfigMap", "a", "1"))
    await simulation.apply(make("Secret", "b", "Mg=="))
    await simulation.advance(seconds=10)
    await simulation.patch("configmaps", "a", {"data": {"size": "3"}})
    await simulation.patch("secrets", "b", {"data": {"size": "NA=="}})
    await simulation.advance(seconds=10)
    await simulation.delete("configmaps", "a")
    await simulation.settle()


pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


async def test_late_events_hold_their_stream_only(simulation: Simulation, seen: Seen) -> None:
    await tell(simulation, seen, lambda faults: faults.delay_event(3, 30))
    assert seen == [
        ("ADDED a", "1", 0),
        ("ADDED b", "Mg==", 0),
        ("MODIFIED b", "NA==", 10),
        ("MODIFIED a", "3", 40),
        ("DELETED a", "3", 40),
    ]
    assert "an event is late by 30s: MODIFIED configmaps default/a" in str(simulation.journal)


@pytest.mark.usefixtures("older_server")
async def test_doubled_deletions(simulation: Simulation, seen: Seen) -> None:
    await tell(simulation, seen, lambda faults: faults.duplicate_event(5))
    assert seen[-2:] == [("DELETED a", "3", 20), ("DELETED a", "3", 20)]
    assert len(seen) == 6
    assert "an event comes twice: DELETED configmaps default/a" in str(simulation.journal)


async def test_the_same_state_twice_is_no_news(simulation: Simulation, seen: Seen) -> None:
    await tell(simulation, seen, lambda faults: faults.duplicate_event(1))
    assert len(seen) == 5
    assert "an event comes twice: ADDED configmaps default/a" in str(simulation.journal)


@pytest.mark.usefixtures("older_server")
async def test_the_past_comes_again(simulation: Simulation, seen: Seen) -> None:
    await tell(simulation, seen, lambda faults: faults.stale_event(2, 5, "configmaps"))
    assert seen == [
        ("ADDED a", "1", 0),
        ("ADDED b", "Mg==", 0),
        ("MODIFIED a", "3", 10),
        ("ADDED a", "1", 10),
        ("MODIFIED b", "NA==", 10),
        ("MODIFIED a", "3", 15),
        ("DELETED a", "3", 20),
    ]
    assert "an event is followed by the past for 5s: MODIFIED configmaps default/a" in str(simulation.journal)


async def test_events_with_no_past_are_repeated(simulation: Simulation, seen: Seen) -> None:
    await tell(simulation, seen, lambda faults: faults.stale_event(1, 30))
    assert len(seen) == 5


async def test_several_events(simulation: Simulation, seen: Seen) -> None:
    def trouble(faults: Any) -> None:
        faults.delay_event(1, 3)
        faults.delay_event(2, 6, resource="secrets")

    await tell(simulation, seen, trouble)
    assert [time for *_, time in seen] == [0, 3, 10, 16, 20]


async def test_trouble_can_be_ended(simulation: Simulation, seen: Seen) -> None:
    await start(simulation, seen)
    simulation.faults.delay_event(1, 300)
    simulation.faults.delay_event(2, 300)
    await simulation.apply(make("ConfigMap", "a", "1"))
    await simulation.advance(seconds=10)
    assert seen == []
    simulation.faults.clear()
    await simulation.advance(seconds=1)
    assert seen == [("ADDED a", "1", 10)]
    await simulation.apply(make("ConfigMap", "b", "1"))
    await simulation.advance(seconds=1)
    assert seen[-1] == ("ADDED b", "1", 11)


async def test_events_are_not_lost_with_their_streams(simulation: Simulation, seen: Seen) -> None:
    await start(simulation, seen)
    simulation.faults.delay_event(1, 300)
    await simulation.apply(make("ConfigMap", "a", "1"))
    await simulation.advance(seconds=10)
    simulation.faults.drop_watch()
    await simulation.advance(seconds=10)
    assert [what for what, *_ in seen] == ["ADDED a"]


@pytest.mark.parametrize(
    "begin",
    [
        lambda faults: faults.stale_view(30),
        lambda faults: faults.partition(30),
        lambda faults: faults.delay_event(1, 30),
    ],
)
async def test_it_is_not_settled_before_it_is_over(
    simulation: Simulation,
    seen: Seen,
    begin: Callable[[Any], None],
) -> None:
    await start(simulation, seen)
    begin(simulation.faults)
    await simulation.apply(make("ConfigMap", "a", "1"))
    await simulation.settle()
    assert [what for what, *_ in seen] == ["ADDED a"]
    assert simulation.now >= 30


@pytest.mark.simulation(operator=True)
def test_bad_numbers(simulation: SyncSimulation) -> None:
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        simulation.faults.duplicate_event(0)
    for method in (simulation.faults.delay_event, simulation.faults.stale_event):
        with pytest.raises(ValueError, match="not negative, got -1"):
            method(1, -1)
