"""The wall clock of a simulation: what timestamps show, and what handlers see."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation, SyncSimulation
from tests.testing.kopfexamples import CRD, begin, make

START = datetime.datetime(2030, 5, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def is_near(one: datetime.datetime, two: datetime.datetime) -> bool:
    return abs(one - two) < datetime.timedelta(seconds=10)


def read_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@pytest.mark.simulation(crds=CRD, operator=False, start=START)
async def test_timestamps_are_of_the_simulation(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(retry: int, started: datetime.datetime, runtime: datetime.timedelta, **_: Any) -> dict[str, Any]:
        if not retry:
            raise kopf.TemporaryError("Not yet.", delay=3600)
        return {"started": started.isoformat(), "runtime": runtime.total_seconds()}

    await simulation.restart()
    await simulation.advance(hours=1)
    obj = await simulation.apply(make())
    assert obj["metadata"]["creationTimestamp"] == "2030-05-01T13:00:00Z"
    await simulation.advance(hours=2)
    obj = await simulation.get("kopfexamples", "obj")
    [status] = obj["status"].values()
    assert status["started"].startswith("2030-05-01T13:00:0")
    assert 3600 <= status["runtime"] < 3610
    [*_, event] = await simulation.events("obj")
    assert event["lastTimestamp"].startswith("2030-05-01T14:00:0")
    assert simulation.wall_clock == START + 3 * HOUR


@pytest.mark.simulation(crds=CRD, operator=False, freeze_wall_clock=False)
async def test_the_process_has_the_real_time_if_wanted(simulation: Simulation) -> None:
    before = read_clock()
    await simulation.advance(days=1)
    assert is_near(read_clock(), before)


@pytest.mark.simulation(crds=CRD, operator=False, start=START)
async def test_the_process_has_the_virtual_time(simulation: Simulation) -> None:
    seen: list[tuple[str, datetime.datetime, float]] = []

    @kopf.timer("kopfexamples", interval=3600, id="coroutine")
    async def timer_fn(**_: Any) -> None:
        seen.append(("coroutine", read_clock(), time.time()))

    @kopf.timer("kopfexamples", interval=3600, id="thread")
    def timer_in_thread(**_: Any) -> None:
        seen.append(("thread", read_clock(), time.time()))

    assert is_near(read_clock(), START)
    await begin(simulation, make())
    await simulation.advance(hours=3)
    assert is_near(read_clock(), START + 3 * HOUR)
    for kind in ("coroutine", "thread"):
        times = [when for what, when, _ in seen if what == kind]
        assert len(times) == 4
        assert all(is_near(when, START + n * HOUR) for n, when in enumerate(times))
    assert all(when.timestamp() == pytest.approx(stamp) for _, when, stamp in seen)


@pytest.mark.simulation(crds=CRD, operator=False, start=START)
async def test_threads_that_sleep(simulation: Simulation) -> None:
    seen = []

    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        seen.append(read_clock())
        time.sleep(3600)
        seen.append(read_clock())

    await begin(simulation, make())
    await simulation.advance(hours=2)
    assert [is_near(when, START + n * HOUR) for n, when in enumerate(seen)] == [True, True]


@pytest.mark.simulation(crds=CRD, operator=False, start=START)
async def test_jumps_of_the_wall_clock(simulation: Simulation) -> None:
    seen = []

    @kopf.timer("kopfexamples", interval=3600)
    async def timer_fn(**_: Any) -> None:
        seen.append((simulation.now, read_clock()))

    await begin(simulation, make())
    await simulation.advance(minutes=30)
    simulation.faults.clock_jump(-24 * 3600)
    assert is_near(read_clock(), START + HOUR / 2 - 24 * HOUR)
    assert is_near(simulation.wall_clock, START + HOUR / 2 - 24 * HOUR)
    await simulation.advance(minutes=40)
    [first, second] = seen
    assert second[0] - first[0] == pytest.approx(3600, abs=1)
    assert is_near(second[1], START + HOUR - 24 * HOUR)
    other = await simulation.apply(make("other"))
    assert other["metadata"]["creationTimestamp"].startswith("2030-04-30T13:10:0")


@pytest.mark.simulation(crds=CRD, operator=False, start=START, freeze_wall_clock=False)
async def test_jumps_of_the_wall_clock_for_timestamps_only(simulation: Simulation) -> None:
    simulation.faults.clock_jump(3600)
    obj = await simulation.apply(make())
    assert obj["metadata"]["creationTimestamp"].startswith("2030-05-01T13:00:0")
    assert not is_near(read_clock(), START)


def test_naive_dates_are_of_utc() -> None:
    naive = datetime.datetime(2030, 5, 1, 12)  # noqa: DTZ001
    with SyncSimulation(start=naive, operator=False) as simulation:
        assert is_near(simulation.wall_clock, START)


def test_the_real_time_is_back_in_the_end() -> None:
    before = read_clock()
    with SyncSimulation(start=START, operator=False, freeze_wall_clock=True) as simulation:
        simulation.advance(days=100)
    assert is_near(read_clock(), before)


@pytest.mark.simulation(crds=CRD, operator=False)
async def test_the_process_has_the_time_of_the_objects(simulation: Simulation) -> None:
    await simulation.advance(days=1)
    obj = await simulation.apply(make())
    created = datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
    assert is_near(created, read_clock())
    assert is_near(created, simulation.wall_clock)


def test_without_the_library_it_is_said_that_there_are_two_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "time_machine", None)
    before = read_clock()
    with (
        pytest.warns(UserWarning, match="objects are of 2026-01-01.*pip install time-machine"),
        SyncSimulation(operator=False),
    ):
        assert is_near(read_clock(), before)
    with SyncSimulation(operator=False, freeze_wall_clock=False):
        pass


def test_the_library_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "time_machine", None)
    with (
        pytest.raises(ImportError, match="pip install time-machine"),
        SyncSimulation(operator=False, freeze_wall_clock=True),
    ):
        pass
