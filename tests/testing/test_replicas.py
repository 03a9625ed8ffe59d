"""Several replicas in one simulation: each is a process of its own, in whatever trouble."""

from __future__ import annotations

import asyncio
import pathlib
import time
from typing import Any

import pytest

import kopf
from kopf._virtual_time.journal import Note
from kopf.testing import Simulation, SyncSimulation
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


def alone(settings: kopf.OperatorSettings) -> None:
    """Let the replicas know nothing of each other, so that each of them handles all objects."""
    settings.peering.standalone = True


def list_notes(simulation: Simulation) -> list[str]:
    return [entry.text for entry in simulation.journal if isinstance(entry, Note)]


@pytest.fixture
def ticks() -> list[str]:
    """A timer that tells who calls it."""
    ticks: list[str] = []

    @kopf.on.startup()
    async def startup_fn(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
        memo.name = settings.coordination.identity

    @kopf.timer("kopfexamples", interval=1, id="tick")
    async def tick(memo: kopf.Memo, **_: Any) -> None:
        ticks.append(memo.name)

    return ticks


async def test_all_of_them_work(simulation: Simulation, ticks: list[str]) -> None:
    replicas = await simulation.replicas(3, configure=alone)
    assert [replica.name for replica in replicas] == ["replica-0", "replica-1", "replica-2"]
    await simulation.apply(make())
    await simulation.advance(seconds=5)
    assert set(ticks[:3]) == set(ticks[-3:]) == {"replica-0", "replica-1", "replica-2"}
    calls = simulation.journal.get_calls("tick", replica="replica-1")
    assert {call.replica for call in calls} == {"replica-1"}
    assert calls[0].describe().startswith("replica-1: timer handler 'tick' of kopfexamples.kopf.dev default/obj")
    await replicas.stop()
    count = len(ticks)
    await simulation.advance(seconds=5)
    assert len(ticks) == count
    assert sum("exits" in note for note in list_notes(simulation)) == 3


async def test_the_state_of_a_process_is_its_own(simulation: Simulation, tmp_path: pathlib.Path) -> None:
    """Memos, indices, clients, and controllers; with files, the modules, too."""
    seen: list[tuple[Any, ...]] = []

    @kopf.index("kopfexamples")
    async def by_name(name: str, **_: Any) -> dict[str, str]:
        return {name: "x"}

    @kopf.on.event("kopfexamples", id="event_fn")
    async def event_fn(memo: kopf.Memo, by_name: Any, name: str, **_: Any) -> None:
        memo.count = memo.get("count", 0) + 1
        seen.append((id(memo), memo.count, id(by_name), [*by_name]))
        await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{len(seen)}"}}, owner=None)

    replicas = await simulation.replicas(2, configure=alone)
    await simulation.apply(make())
    await simulation.settle()
    memos, counts, indices, names = zip(*seen, strict=True)
    assert len(set(memos)) == len(set(indices)) == len(replicas)
    assert counts == (1, 1)
    assert names == (["obj"], ["obj"])
    authors = {write.author for write in simulation.journal.get_writes() if write.resource == "configmaps"}
    assert {"replica-0", "replica-1"} <= authors


def test_modules_are_loaded_by_each_replica(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "handlers.py"
    path.write_text(
        "import kopf\n"
        "counter = []\n"
        "@kopf.on.event('kopfexamples')\n"
        "def event_fn(name, **_):\n"
        "    counter.append(name)\n"
        "    assert len(counter) == 1\n"
    )
    with SyncSimulation(path, crds=CRD, operator=False) as simulation:
        replicas = simulation.replicas(2, configure=alone)
        simulation.apply(make())
        simulation.settle()
        assert [call.outcome for call in simulation.journal.get_calls("event_fn")] == ["succeeded"] * 2
        replicas[1].kill()
        simulation.apply(make("other"))
        simulation.settle()
        assert [call.replica for call in simulation.journal.get_calls("event_fn", name="other")] == ["replica-0"]
        simulation.run(replicas.scale(1))


async def test_one_is_killed_and_started_again(simulation: Simulation, ticks: list[str]) -> None:
    replicas = await simulation.replicas(2, configure=alone)
    await simulation.apply(make())
    await simulation.advance(seconds=2)
    replicas[0].kill()
    assert [replica.is_running for replica in replicas] == [False, True]
    ticks.clear()
    await simulation.advance(seconds=5)
    assert set(ticks) == {"replica-1"}
    await replicas["replica-0"].start()
    await simulation.advance(seconds=5)
    assert set(ticks) == {"replica-0", "replica-1"}
    assert [note for note in list_notes(simulation) if note.startswith("replica-0 ")] == [
        "replica-0 starts",
        "replica-0 is killed",
        "replica-0 starts",
    ]


async def test_nothing_of_a_frozen_one_runs(simulation: Simulation, ticks: list[str]) -> None:
    replicas = await simulation.replicas(2, configure=alone)
    await simulation.apply(make())
    await simulation.advance(seconds=2)
    replicas[0].freeze()
    await simulation.advance()
    ticks.clear()
    await simulation.advance(seconds=100)
    assert set(ticks) == {"replica-1"}
    assert len(ticks) in (99, 100, 101)
    replicas[0].thaw()
    ticks.clear()
    await simulation.advance(seconds=5)
    assert ticks.count("replica-0") in (5, 6)


async def test_what_has_come_for_a_frozen_one_is_taken_when_it_thaws(simulation: Simulation) -> None:
    times: list[tuple[str, float]] = []

    @kopf.on.event("kopfexamples", id="event_fn")
    async def event_fn(name: str, **_: Any) -> None:
        times.append((name, asyncio.get_running_loop().time()))
        await asyncio.sleep(3)
        times.append((name, asyncio.get_running_loop().time()))

    (replica,) = await simulation.replicas(1, configure=alone)
    await simulation.apply(make("one"))
    await simulation.advance(seconds=1)
    replica.freeze()
    await simulation.apply(make("two"))
    await simulation.advance(seconds=60)
    replica.thaw()
    await simulation.advance(seconds=10)
    start = times[0][1]
    assert [(name, round(at - start)) for name, at in times] == [("one", 0), ("one", 61), ("two", 61), ("two", 64)]


async def test_threads_are_frozen(simulation: Simulation) -> None:
    ends: list[float] = []

    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(**_: Any) -> None:
        time.sleep(5)
        ends.append(simulation.now)

    (replica,) = await simulation.replicas(1, configure=alone)
    await simulation.apply(make())
    await simulation.advance(seconds=1)
    began = simulation.now
    replica.freeze()
    await simulation.advance(seconds=60)
    assert not ends
    replica.thaw()
    await simulation.advance(seconds=1)
    assert [round(end - began) for end in ends] == [60]


async def test_a_frozen_one_that_is_killed_does_nothing_more(simulation: Simulation) -> None:
    done: list[str] = []

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        try:
            await asyncio.sleep(5)
            done.append("slept")
        finally:
            done.append("over")

    (replica,) = await simulation.replicas(1, configure=alone)
    await simulation.apply(make())
    await simulation.advance(seconds=1)
    replica.freeze()
    await simulation.advance(seconds=10)
    replica.kill()
    await simulation.advance(seconds=10)
    assert done == ["over"]
    assert not simulation.journal.get_calls("create_fn")


async def test_one_is_cut_off(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> str:
        return "done"

    (replica,) = await simulation.replicas(1, configure=alone)
    replica.partition()
    obj = await simulation.apply(make())
    await simulation.advance(seconds=60)
    assert not simulation.journal.get_calls("create_fn")
    replica.heal()
    await simulation.expect(obj, field="status.create_fn", value="done")


async def test_one_has_another_time(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(started: Any, **_: Any) -> str:
        return str(started.isoformat()[:13])

    replicas = await simulation.replicas(1, configure=alone)
    first = await simulation.apply(make("first"))
    await simulation.expect(first, field="status.create_fn", value="2026-01-01T00")
    replicas[0].kill()
    replicas[0].skew_clock(3600)
    await replicas[0].start()
    second = await simulation.apply(make("second"))
    await simulation.expect(second, field="status.create_fn", value="2026-01-01T01")
    assert simulation.wall_clock.hour == 0


async def test_scaling(simulation: Simulation, ticks: list[str]) -> None:
    replicas = await simulation.replicas(1, configure=alone)
    await simulation.apply(make())
    for count in (3, 0, 2):
        await replicas.scale(count)
        ticks.clear()
        await simulation.advance(seconds=3)
        assert set(ticks) == {f"replica-{number}" for number in range(count)}
    assert [replica.is_running for replica in replicas] == [True, True, False]


async def test_failures_are_told(simulation: Simulation) -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        if settings.coordination.identity == "replica-1":
            raise kopf.PermanentError("it is broken")

    with pytest.raises(Exception, match="startup_fn"):
        await simulation.replicas(2, configure=alone)


async def test_moments_are_for_all_of_them(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> str:
        return "done"

    replicas = await simulation.replicas(1, configure=alone)
    simulation.when(write=1, do=replicas[0].freeze)
    await simulation.apply(make())
    await simulation.advance(seconds=10)
    assert simulation.writes == 1
    assert "replica-0 is frozen" in list_notes(simulation)


async def test_two_hands_are_noticed(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        await asyncio.sleep(5)

    replicas = await simulation.replicas(2, configure=alone)
    replicas.assert_one_owner()
    await simulation.apply(make())
    await simulation.advance(seconds=1)
    with pytest.raises(AssertionError) as caught:
        replicas.assert_one_owner()
    assert "was in 'create_fn' of kopfexamples.kopf.dev default/obj while replica-" in str(caught.value)


async def test_writes_by_others_are_noticed(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(memo: kopf.Memo, **_: Any) -> None:
        if memo.name == "replica-0":
            await asyncio.sleep(60)

    @kopf.on.startup()
    async def startup_fn(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
        memo.name = settings.coordination.identity

    replicas = await simulation.replicas(2, configure=alone)
    await simulation.apply(make())
    await simulation.advance(seconds=1)
    with pytest.raises(AssertionError) as caught:
        replicas.assert_one_owner()
    assert "replica-1 has written the progress of kopfexamples.kopf.dev default/obj while" in str(caught.value)


@pytest.mark.parametrize("trouble", ["freeze", "kill"])
async def test_the_stopped_hold_nothing(simulation: Simulation, trouble: str) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        await asyncio.sleep(5)

    replicas = await simulation.replicas(2, configure=alone)
    replicas[1].freeze()
    await simulation.apply(make())
    await simulation.advance(seconds=1)
    getattr(replicas[0], trouble)()
    await simulation.advance()
    replicas[1].thaw()
    await simulation.advance(seconds=1)
    replicas.assert_one_owner()
    if trouble == "freeze":  # and both go on now
        replicas[0].thaw()
        await simulation.advance(seconds=1)
        with pytest.raises(AssertionError, match="Two replicas handled one object"):
            replicas.assert_one_owner()


async def test_the_same_story_is_told_every_time() -> None:
    def tell() -> str:
        with SyncSimulation(crds=CRD, operator=False, seed=3) as simulation:
            replicas = simulation.replicas(2, configure=alone)
            simulation.apply(make())
            simulation.advance(seconds=3)
            replicas[0].freeze()
            simulation.advance(seconds=3)
            replicas[0].thaw()
            replicas[1].kill()
            simulation.advance(seconds=3)
            return str(simulation.journal)

    @kopf.timer("kopfexamples", interval=0.7)
    async def tick(**_: Any) -> None:
        pass

    first, second = await asyncio.to_thread(tell), await asyncio.to_thread(tell)
    assert first == second
