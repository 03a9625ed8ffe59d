"""Crashes: the operator dies as on SIGKILL, at any moment, and another one goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf.testing import Simulation
from tests.testing.kopfexamples import CRD, begin, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


def list_notes(simulation: Simulation) -> list[str]:
    return [entry.describe() for entry in simulation.journal if "the operator" in entry.describe()]


async def test_nothing_is_said_goodbye_to(simulation: Simulation) -> None:
    ended: list[str] = []

    @kopf.on.cleanup()
    async def cleanup_fn(**_: Any) -> None:
        ended.append("cleanup")

    @kopf.daemon("kopfexamples")
    async def daemon_fn(stopped: Any, patch: kopf.Patch, logger: logging.Logger, **_: Any) -> None:
        try:
            await stopped.wait()
        finally:
            ended.append("daemon")
            logger.info("The daemon is over.")
            patch.status["over"] = True

    await begin(simulation, make())
    await simulation.settle()
    lines, entries = len(simulation.logs), len(simulation.journal)
    before = await simulation.get("kopfexamples", "obj")
    await simulation.crash()
    assert not simulation.is_running
    await simulation.advance(hours=1)
    assert await simulation.get("kopfexamples", "obj") == before
    assert len(simulation.logs) == lines
    assert [entry.describe() for entry in simulation.journal][entries:] == ["the operator crashes"]
    assert "cleanup" not in ended


async def test_nothing_is_written_after_the_crash(simulation: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        await asyncio.sleep(10)
        patch.status["done"] = True

    await begin(simulation, make())
    await simulation.advance(seconds=5)
    await simulation.crash()
    await simulation.advance(minutes=1)
    assert "status" not in await simulation.get("kopfexamples", "obj")
    assert simulation.journal.get_calls() == []
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    await simulation.restart()
    await simulation.expect("kopfexamples", "obj", field="status.done", value=True, within=15)
    assert [call.reason for call in simulation.journal.get_calls()] == ["create"]


@pytest.mark.parametrize("wait", [lambda _: time.sleep(60), lambda stopped: stopped.wait(60)], ids=["sleep", "wait"])
async def test_threads_of_the_dead_end_and_leave_nothing(simulation: Simulation, wait: Callable[[Any], object]) -> None:
    rounds = []

    @kopf.daemon("kopfexamples")
    def daemon_fn(stopped: Any, **_: Any) -> None:
        while not stopped:
            rounds.append(simulation.now)
            wait(stopped)

    await begin(simulation, make())
    await simulation.advance(seconds=90)
    assert len(rounds) == 2
    await simulation.crash()
    await simulation.advance(hours=1)
    assert len(rounds) == 2
    assert simulation.journal.get_calls() == []


async def test_the_next_life_knows_nothing_of_the_previous_one(simulation: Simulation) -> None:
    seen = []

    @kopf.on.startup()
    async def startup_fn(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
        seen.append((dict(memo), settings.posting.enabled))
        memo.known = True
        settings.posting.enabled = False

    await simulation.restart()
    await simulation.crash()
    await simulation.restart()
    assert seen == [({}, True), ({}, True)]


async def test_crash_when_it_does_not_run(simulation: Simulation) -> None:
    await simulation.crash()
    assert list_notes(simulation) == []


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
async def test_crash_at_a_write(simulation: Simulation, before: bool) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["done"] = True

    await simulation.restart()
    await simulation.settle()
    simulation.crash_after(write=1, before=before)
    await simulation.apply(make())
    await simulation.settle()
    assert simulation.writes == 1
    assert not simulation.is_running
    assert len(simulation.journal.get_writes(simulation.user)) == (0 if before else 1)
    assert ("status" in await simulation.get("kopfexamples", "obj")) is not before
    await simulation.restart()
    await simulation.expect("kopfexamples", "obj", field="status.done", value=True)


async def test_each_write_can_be_the_last_one(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="one")
    async def create_one(**_: Any) -> str:
        return "one"

    @kopf.on.create("kopfexamples", id="two")
    async def create_two(**_: Any) -> str:
        return "two"

    @kopf.on.delete("kopfexamples")
    async def delete_fn(**_: Any) -> None:
        pass

    await begin(simulation, make("measure"))
    await simulation.settle()
    total = simulation.writes
    assert total >= 2
    for write in range(1, total + 1):
        simulation.crash_after(write=write, restart=True)
        await simulation.apply(make(f"obj{write}"))
        await simulation.expect("kopfexamples", f"obj{write}", field="status.two", value="two")
        await simulation.expect("kopfexamples", f"obj{write}", field="status.one", value="one")
        await simulation.settle()
    assert list_notes(simulation).count("the operator crashes") == total


async def test_restart_by_itself_after_a_downtime(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["done"] = True

    await simulation.restart()
    simulation.crash_after(write=1, before=True, restart=True, downtime=600)
    await simulation.apply(make())
    await simulation.settle()  # it waits for the operator to come back
    assert simulation.is_running
    assert (await simulation.get("kopfexamples", "obj"))["status"]["done"]
    times = [entry.time for entry in simulation.journal if "the operator" in entry.describe()]
    assert times[2] - times[1] == pytest.approx(600)
    assert list_notes(simulation) == ["the operator starts", "the operator crashes", "the operator starts"]


async def test_writes_are_counted_from_one(simulation: Simulation) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        simulation.crash_after(write=0)


async def test_events_are_no_writes(simulation: Simulation) -> None:
    @kopf.on.event("kopfexamples")
    async def event_fn(body: kopf.Body, **_: Any) -> None:
        kopf.info(body, reason="Seen", message="It is seen.")

    await begin(simulation, make())
    await simulation.settle()
    assert [event["reason"] for event in await simulation.events("obj")] == ["Seen"]
    assert simulation.writes == 0
