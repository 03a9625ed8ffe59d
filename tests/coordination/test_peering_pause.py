"""The pause because of one peering object: when it is held & released, and what is said of that; with no requests."""

from __future__ import annotations

import asyncio
import datetime
import logging

import pytest

from kopf._coordination.peering_pause import PeeringPause
from kopf._coordination.records import Site
from tests.runtimes import make_runtime

pytestmark = pytest.mark.fastforward

Priorities = dict[str, int]


class Place:
    """One peering object as we see it; our own priority is 10."""

    def __init__(self) -> None:
        self.runtime = make_runtime()
        self.runtime.settings.peering.priority = 10
        self.deaths = 0
        self.pause = PeeringPause(Site(self.runtime, "us", "ns"), on_death=self._count_death)

    def _count_death(self) -> None:
        self.deaths += 1

    def look(self, others: Priorities, *, lifetime: float = 60) -> None:
        """See the records of the others, all of them fresh."""
        now = datetime.datetime.now(datetime.UTC)
        records = {
            name: {"priority": priority, "lifetime": lifetime, "lastseen": now.isoformat()}
            for name, priority in others.items()
        }
        self.pause.peers.take(records, now=now, time=asyncio.get_running_loop().time())
        self.pause.compare()

    @property
    def reasons(self) -> list[str]:
        return [*self.runtime.pause.reasons]


@pytest.fixture
async def place(caplog: pytest.LogCaptureFixture) -> Place:
    caplog.set_level(logging.INFO, "kopf._coordination")
    return Place()


async def test_it_is_held_until_it_is_checked(place: Place) -> None:
    place.pause.await_check()
    assert place.reasons == ["the peering 'default' in 'ns' is not checked yet"]
    place.look({})
    assert place.reasons == []


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({}, None),
        ({"junior": 9}, None),
        ({"senior": 11}, "in favour of senior (priority 11)"),
        ({"rival": 10}, "in favour of rival (priority 10)"),
        ({"junior": 9, "senior": 11, "rival": 10}, "in favour of senior (priority 11), rival (priority 10)"),
    ],
)
async def test_those_who_have_the_priority(place: Place, others: Priorities, reason: str | None) -> None:
    place.look(others)
    assert place.reasons == ([] if reason is None else [f"{reason} by the peering 'default' in 'ns'"])
    shown = [(item["identity"], item["priority"]) for item in place.runtime.liveness.describe_seniors()]
    assert dict(shown) == {name: priority for name, priority in others.items() if priority >= 10}
    place.pause.stop_timer()


async def test_changes_are_told_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.look({})
    assert not caplog.messages  # there was no pause
    for others in ({"a": 20}, {"a": 20}, {"a": 20, "b": 20}, {}, {}):
        place.look(others)
    assert [message.partition("<")[0] for message in caplog.messages] == [
        "Pausing operations in favour of [",
        "Pausing operations in favour of [",
        "Resuming operations after the pause. Nothing stands in the way anymore.",
    ]


async def test_nobody_waits_for_deaths_after_the_end(place: Place) -> None:
    place.look({"senior": 20}, lifetime=60)
    place.pause.stop_timer()
    await asyncio.sleep(100)
    assert place.deaths == 0


async def test_other_reasons_remain(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.runtime.pause.hold("other", "another reason")
    place.look({"senior": 20})
    place.look({})
    assert place.reasons == ["another reason"]
    assert not [message for message in caplog.messages if message.startswith("Resuming")]
