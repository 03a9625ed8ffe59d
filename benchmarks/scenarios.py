"""
The scenarios: which operator is run, and what is done to the objects.

Each run has a new cluster and a new operator, which gets two loads one after another:

* The calm one: a few objects at a slow steady pace. It tells the latencies; and what an object takes when the operator
  sleeps between the objects: it is much more, as all caches of the processor are cold each time.
* The busy one: as many objects as requested, so that the operator has something to do all the time, but with a limited
  number of objects not handled yet. It tells the CPU, i.e. how much one operator can do, and the memory.
"""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.loading import Board, Client, Pace
from benchmarks.measuring import SETTLING, Actions, Bench, Cost, make_names
from benchmarks.places import foreign_place, local_place
from benchmarks.processes import Framework, Pipe

WARM_UP = 10
CALM = 200
CALM_PACE = Pace(rate=50, in_flight=50)
LAST_TIER = "last"
"""The label of those objects which are reported even if only the last one is."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is measured, with which operator."""

    title: str
    file: str
    make_actions: Callable[[Client], Actions] | None
    """What is done to the objects; if nothing, the operator is restarted, as the objects are handled already."""
    by_reports: bool = False
    """Whether the handlers report to the benchmark by themselves, as nothing is seen in the cluster."""
    noted: str = "RESUMED"
    """What is reported of every object after a restart."""
    warmed_up: str = "CHANGED"
    """What is reported of new objects before the restart."""
    blocked: bool = False
    """Whether the existing objects have finalizers already, as if they were served before the restart."""
    only_last: bool = False
    """Whether it is only the last object that is reported after a restart, with all the others done before it."""
    limit: int | None = None
    """For how many objects the original framework can be measured in reasonable time; for any number by default."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run has shown."""

    scenario: str
    size: int
    framework: str
    start_cpu: float
    """CPU from the start of the operator until it is ready and has nothing to do, in seconds."""
    idle_memory: float
    """Resident memory of the idle operator, in MiB."""
    peak: float
    """The highest resident memory of the operator, in MiB."""
    calm: Cost | None
    busy: Cost


def _create(client: Client) -> Actions:
    return {"created": client.create}


def _create_and_change(client: Client) -> Actions:
    return {"ADDED": client.create, "MODIFIED": client.change}


def _live(client: Client) -> Actions:
    return {"created": client.create, "updated": client.change, "deleted": client.delete}


SCENARIOS: Mapping[str, Scenario] = {
    "create": Scenario("one create handler", "create_one.py", _create),
    "life": Scenario("create + update + delete", "create_update_delete.py", _live),
    "six": Scenario("six create handlers", "create_six.py", _create),
    "sync": Scenario("one synchronous create handler", "create_sync.py", _create),
    "posted": Scenario("one create handler, two events posted", "create_posted.py", _create),
    "events": Scenario("raw events, two per object", "raw_events.py", _create_and_change, by_reports=True),
    "resume": Scenario("resuming of handled objects", "resume.py", None, by_reports=True),
    "index": Scenario(
        "indexing at the start",
        "index.py",
        None,
        by_reports=True,
        noted="SEEN",
        warmed_up="SEEN",
        only_last=True,
        limit=2000,
    ),
    "timers": Scenario(
        "timers, hourly", "timers.py", None, by_reports=True, noted="TICK", warmed_up="TICK", blocked=True
    ),
    "daemons": Scenario(
        "daemons, waiting", "daemons.py", None, by_reports=True, noted="SPAWNED", warmed_up="SPAWNED", blocked=True
    ),
}


async def run_once(
    key: str, size: int, framework: Framework, pace: Pace, *, timeout: float, kubeconfig: str | None = None
) -> Result:
    """Run the scenario once, from a new local cluster, or from a new namespace of another one, to the result."""
    scenario = SCENARIOS[key]
    pipe = Pipe()
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as directory:
        folder = pathlib.Path(directory)
        async with (
            asyncio.timeout(timeout),
            pipe.reader() as reader,
            local_place(folder) if kubeconfig is None else foreign_place(kubeconfig) as place,
        ):
            bench = Bench(
                framework=framework,
                kubeconfig=place.kubeconfig,
                cluster=place.meter,
                client=place.client,
                directory=folder,
                pipe=pipe,
                board=Board(),
            )
            measuring = asyncio.ensure_future(_measure(key, scenario, size, bench, pace))
            follower = asyncio.ensure_future(
                bench.board.follow_reports(reader) if scenario.by_reports else bench.board.follow_stream(place.client)
            )
            try:
                await asyncio.wait([measuring, follower], return_when=asyncio.FIRST_COMPLETED)
                if not measuring.done():
                    await follower
                    raise RuntimeError("It is not seen anymore what is handled.")
                return measuring.result()
            finally:
                for task in (measuring, follower):
                    task.cancel()
                await asyncio.gather(measuring, follower, return_exceptions=True)


async def _measure(key: str, scenario: Scenario, size: int, bench: Bench, pace: Pace) -> Result:
    names = make_names("widget", size)
    if scenario.make_actions is None:
        return await _measure_restart(key, scenario, names, bench)
    actions = scenario.make_actions(bench.client)
    async with bench.operator(scenario.file) as operator:
        idle = await bench.warm_up(operator, next(iter(actions)), WARM_UP)
        calm = await bench.load(operator, actions, make_names("calm", CALM), CALM_PACE)
        busy = await bench.load(operator, actions, names, pace)
        peak = operator.peak
    return Result(key, size, bench.framework.name, idle.cpu, idle.memory / 1024, peak / 1024, calm, busy)


async def _measure_restart(key: str, scenario: Scenario, names: Sequence[str], bench: Bench) -> Result:
    """
    Run the operator with nearly no objects, stop it, create objects as if it has handled them, and run it again.

    The cost is all CPU since its startup handlers, with the login and the discovery; and all memory above what the
    first run has needed. The latencies are from the start of the process.
    """
    async with bench.operator(scenario.file) as operator:
        idle = await bench.warm_up(operator, scenario.warmed_up, WARM_UP, tier=LAST_TIER)
    for name in names:
        tier = LAST_TIER if name == names[-1] else "backend"
        await bench.client.create(name, handled=True, blocked=scenario.blocked, tier=tier)
    await bench.client.reset_counters()
    started = time.perf_counter()
    async with bench.operator(scenario.file) as operator:
        await bench.board.wait("STARTED", str(operator.pid))
        before = dataclasses.replace(bench.observe(operator), memory=idle.memory)
        awaited = [names[-1]] * len(names) if scenario.only_last else names
        times = [await bench.board.wait(scenario.noted, name) for name in awaited]
        duration = time.perf_counter() - started
        await asyncio.sleep(SETTLING)
        latencies = {scenario.noted: [moment - started for moment in times]}
        cost = await bench.summarize(before, bench.observe(operator), latencies, duration)
        peak = operator.peak
    if len(bench.board.times.get("CHANGED", ())) > WARM_UP:
        raise RuntimeError("The objects that were handled already are handled again.")
    return Result(key, len(names), bench.framework.name, idle.cpu, idle.memory / 1024, peak / 1024, None, cost)
