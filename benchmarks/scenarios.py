"""
The scenarios: what is done to the objects, and what is measured meanwhile.

Each run has a new cluster and a new operator. The operator gets some objects to warm up, and is given time to settle
before and after the load: so, what it keeps in memory is what it needs for idle objects, and its CPU includes all that
it does for them after they are handled (the echoes of its own patches, expired workers).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import yaml

from benchmarks.loading import Board, Client, load
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_cluster, running_operator

SETTLING = 6.0
"""The workers of the original framework live for 5 seconds after the last event. In seconds."""

_WARM_UP = [f"warm-up-{index}" for index in range(10)]
_SETUP_TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True)
class Pace:
    """How the load comes: objects per second, and how many can be not handled yet."""

    rate: float
    in_flight: int


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run has shown."""

    scenario: str
    size: int
    framework: str
    cpu: float
    """CPU of the operator per object, in milliseconds."""
    memory: float
    """Memory that the operator keeps per object, in KiB."""
    peak: float
    """The highest resident memory of the operator, in MiB."""
    calls: float
    """API calls of the operator per object."""
    p50: float
    """From the creation to handled (from the start of the process for resuming), in milliseconds."""
    p99: float
    start_cpu: float
    """CPU from the start of the operator until it is ready, in seconds."""
    idle_memory: float
    """Resident memory of the idle operator, in MiB."""
    cluster_cpu: float
    """CPU of the local cluster per object, in milliseconds: it must not be the bottleneck."""
    duration: float
    """Of the load, in seconds, without settling."""
    reports: int
    """How many times anything was noted as handled."""
    latencies: dict[str, tuple[float, float]]
    """p50 & p99 for each phase, in milliseconds."""
    requests: dict[str, int]
    """Requests of the operator and of the load, by the verb and the resource."""


@dataclasses.dataclass
class Bench:
    """One run: a framework, a cluster, a load, and what is measured."""

    framework: Framework
    size: int
    pace: Pace
    kubeconfig: pathlib.Path
    cluster: Meter
    client: Client
    pipe: Pipe
    board: Board
    latencies: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    duration: float = 0.0

    @property
    def names(self) -> Sequence[str]:
        return [f"widget-{index:06}" for index in range(self.size)]

    @contextlib.asynccontextmanager
    async def operator(self, file: str) -> AsyncIterator[Meter]:
        log = self.kubeconfig.with_suffix(".log")
        try:
            async with running_operator(
                self.framework, OPERATORS / file, kubeconfig=self.kubeconfig, pipe=self.pipe, log=log
            ) as meter:
                yield meter
        except BaseException as e:
            tail = log.read_text(errors="replace").splitlines()[-15:]
            e.add_note(f"The last lines of the {self.framework.name} operator's log:\n" + "\n".join(tail))
            raise

    async def warm_up(self, operator: Meter, phase: str) -> None:
        async with asyncio.timeout(_SETUP_TIMEOUT):
            for name in _WARM_UP:
                await self.client.create(name)
            for name in _WARM_UP:
                await self.board.wait(phase, name)
        await asyncio.sleep(SETTLING)

    async def drive(self, action: Callable[[str], Awaitable[None]], phase: str) -> None:
        """Do it for all objects, and wait until they are handled."""
        started = time.perf_counter()
        self.latencies[phase] = await load(
            action, self.names, self.board, phase, rate=self.pace.rate, in_flight=self.pace.in_flight
        )
        self.duration += time.perf_counter() - started


@dataclasses.dataclass(frozen=True)
class Usage:
    """What was consumed by a moment."""

    cpu: float
    memory: float

    @classmethod
    def of(cls, meter: Meter) -> Usage:
        return cls(meter.cpu, meter.memory)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The idle state, the state after the load with all objects still there, the final CPU, and the peak."""

    idle: Usage
    loaded: Usage
    final: Usage
    peak: float
    requests: dict[str, int]
    calls: int
    cluster_cpu: float


class Window:
    """What is between two moments: the API calls and the CPU of the cluster."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._cluster_cpu = bench.cluster.cpu

    async def open(self) -> None:
        await self._bench.client.reset_counters()
        self._bench.board.total = 0
        self._cluster_cpu = self._bench.cluster.cpu

    async def close(self, operator: Meter, idle: Usage, loaded: Usage) -> Measurement:
        final = Usage.of(operator)
        requests = await self._bench.client.read_counters()
        return Measurement(
            idle=idle,
            loaded=loaded,
            final=final,
            peak=operator.peak,
            requests=requests,
            calls=sum(requests.values()) - self._bench.client.requests,
            cluster_cpu=self._bench.cluster.cpu - self._cluster_cpu,
        )


async def measure_life(bench: Bench, file: str, *, phases: Sequence[str] = ("created",)) -> Measurement:
    """Create the objects, maybe change and delete them; phase by phase."""
    actions = {
        "created": bench.client.create,
        "updated": lambda name: bench.client.change(name, phase="updated"),
        "deleted": bench.client.delete,
    }
    window = Window(bench)
    async with bench.operator(file) as operator:
        await bench.warm_up(operator, "created")
        idle = loaded = Usage.of(operator)
        await window.open()
        for phase in phases:
            await bench.drive(actions[phase], phase)
            await asyncio.sleep(SETTLING)
            if phase != "deleted":
                loaded = Usage.of(operator)
        return await window.close(operator, idle, loaded)


async def measure_raw_events(bench: Bench, file: str) -> Measurement:
    """Create the objects and change them once; the handler reports each event by itself."""
    window = Window(bench)
    async with bench.operator(file) as operator:
        await bench.warm_up(operator, "ADDED")
        idle = Usage.of(operator)
        await window.open()
        await bench.drive(bench.client.create, "ADDED")
        await bench.drive(lambda name: bench.client.change(name, phase="updated"), "MODIFIED")
        await asyncio.sleep(SETTLING)
        return await window.close(operator, idle, Usage.of(operator))


async def measure_resuming(bench: Bench, file: str) -> Measurement:
    """Run the operator with nearly no objects, stop it, create handled objects, and run it again."""
    async with bench.operator(file) as operator:
        await bench.warm_up(operator, "CHANGED")
        idle = Usage.of(operator)
    for name in bench.names:
        await bench.client.create(name, handled=True)
    window = Window(bench)
    await window.open()
    started = time.perf_counter()
    async with bench.operator(file) as operator:
        times = [await bench.board.wait("RESUMED", name) for name in bench.names]
        bench.latencies["RESUMED"] = [moment - started for moment in times]
        bench.duration = time.perf_counter() - started
        await asyncio.sleep(SETTLING)
        if len(bench.board.times["CHANGED"]) > len(_WARM_UP):
            raise RuntimeError("Objects that were handled already are handled again.")
        return await window.close(operator, idle, Usage.of(operator))


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is measured, with which operator."""

    title: str
    file: str
    measure: Callable[[Bench, str], Awaitable[Measurement]]
    by_reports: bool = False
    """Whether the handlers report by themselves."""


async def _measure_whole_life(bench: Bench, file: str) -> Measurement:
    return await measure_life(bench, file, phases=("created", "updated", "deleted"))


SCENARIOS = {
    "create": Scenario("one create handler", "create_one.py", measure_life),
    "life": Scenario("create + update + delete", "create_update_delete.py", _measure_whole_life),
    "six": Scenario("six create handlers", "create_six.py", measure_life),
    "events": Scenario("raw events (2 per object)", "raw_events.py", measure_raw_events, by_reports=True),
    "resume": Scenario("resume handled objects", "resume.py", measure_resuming, by_reports=True),
}


async def run_once(key: str, size: int, framework: Framework, pace: Pace, *, timeout: float) -> Result:
    """Run the scenario once, from a new cluster to the result."""
    scenario = SCENARIOS[key]
    pipe = Pipe()
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as directory:
        kubeconfig = pathlib.Path(directory) / "kubeconfig.yaml"
        async with (
            asyncio.timeout(timeout),
            pipe.reader() as reader,
            running_cluster(kubeconfig) as cluster,
            Client.connected(_read(kubeconfig)) as client,
        ):
            bench = Bench(framework, size, pace, kubeconfig, cluster, client, pipe, Board())
            following = bench.board.follow_reports(reader) if scenario.by_reports else bench.board.follow_stream(client)
            follower = asyncio.create_task(following)
            measuring = asyncio.ensure_future(scenario.measure(bench, scenario.file))
            try:
                await asyncio.wait([follower, measuring], return_when=asyncio.FIRST_COMPLETED)
                measurement = await measuring if measuring.done() else await _fail(follower)
            finally:
                for task in (follower, measuring):
                    task.cancel()
                await asyncio.gather(follower, measuring, return_exceptions=True)
            return _summarize(key, bench, measurement)


def _read(kubeconfig: pathlib.Path) -> Mapping[str, Any]:
    config: Mapping[str, Any] = yaml.safe_load(kubeconfig.read_text())
    return config


async def _fail(follower: asyncio.Task[None]) -> Measurement:
    await follower
    raise RuntimeError("The benchmark cannot see anymore what is handled.")


def _summarize(key: str, bench: Bench, measured: Measurement) -> Result:
    percentiles = {phase: _percentiles(values) for phase, values in bench.latencies.items()}
    p50, p99 = next(iter(percentiles.values()))
    # The CPU of a restarted operator counts from its start, and the start itself is what it takes with no objects.
    return Result(
        scenario=key,
        size=bench.size,
        framework=bench.framework.name,
        cpu=(measured.final.cpu - measured.idle.cpu) * 1000 / bench.size,
        memory=(measured.loaded.memory - measured.idle.memory) / bench.size,
        peak=measured.peak / 1024,
        calls=measured.calls / bench.size,
        p50=p50,
        p99=p99,
        start_cpu=measured.idle.cpu,
        idle_memory=measured.idle.memory / 1024,
        cluster_cpu=measured.cluster_cpu * 1000 / bench.size,
        duration=bench.duration,
        reports=bench.board.total,
        latencies=percentiles,
        requests=measured.requests,
    )


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000
