"""
Measuring: one operator under one load after another, and what each of the loads has taken.

After each load, the operator is given time to settle: so, what it keeps in memory is what it needs for idle objects,
and its CPU includes all that it does after the objects are handled (the echoes of its own patches, expired workers).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from benchmarks.loading import Board, Client, Pace, load
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator

SETTLING = 6.0
"""The workers of the original framework live for 5 seconds after the last event. In seconds."""

Actions = Mapping[str, Callable[[str], Awaitable[None]]]
"""What is done to each of the objects, by how it is noted when handled."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """What was consumed by a moment: CPU in seconds, memory in KiB."""

    cpu: float
    memory: float
    cluster_cpu: float | None


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a load has taken, per object."""

    cpu: float
    """CPU of the operator, in milliseconds."""
    memory: float
    """Memory that the operator keeps, in KiB."""
    calls: float | None
    """API calls of the operator; unknown if it is not the local cluster."""
    p50: float
    """From the creation to handled (from the start of the process when resuming), in milliseconds."""
    p99: float
    cluster_cpu: float | None
    """CPU of the local cluster, in milliseconds: it must not be the bottleneck."""
    duration: float
    """Of the whole load, in seconds, without settling."""
    latencies: Mapping[str, tuple[float, float]]
    """p50 & p99 for each of the actions, in milliseconds."""
    requests: Mapping[str, int] | None
    """Requests of the operator and of the load, in total, by the verb and the resource."""


@dataclasses.dataclass
class Bench:
    """A framework, a cluster, and what is needed to load and observe them."""

    framework: Framework
    kubeconfig: str
    cluster: Meter | None
    """Only if it is the local one."""
    client: Client
    directory: pathlib.Path
    """For the logs."""
    pipe: Pipe
    board: Board

    @contextlib.asynccontextmanager
    async def operator(self, file: str) -> AsyncIterator[Meter]:
        """Run the operator; if anything fails, show its last words."""
        log = self.directory / "operator.log"
        try:
            async with running_operator(
                self.framework, OPERATORS / file, kubeconfig=self.kubeconfig, pipe=self.pipe, log=log
            ) as meter:
                yield meter
        except BaseException as e:
            tail = log.read_text(errors="replace").splitlines()[-15:]
            e.add_note(f"The last lines of the operator's log ({self.framework.name}):\n" + "\n".join(tail))
            raise

    async def warm_up(self, operator: Meter, phase: str, count: int, *, tier: str = "backend") -> Usage:
        """Wait until the operator handles objects; tell what it takes to start and to have nothing to do."""
        names = make_names("warm-up", count)
        for name in names:
            await self.client.create(name, tier=tier)
        for name in names:
            await self.board.wait(phase, name)
        await asyncio.sleep(SETTLING)
        return self.observe(operator)

    def observe(self, operator: Meter) -> Usage:
        return Usage(operator.cpu, operator.memory, None if self.cluster is None else self.cluster.cpu)

    async def load(self, operator: Meter, actions: Actions, names: Sequence[str], pace: Pace) -> Cost:
        """Do something to all objects, then something else, and so on; each time, wait until they are handled."""
        before = self.observe(operator)
        await self.client.reset_counters()
        memory = before.memory
        duration = 0.0
        latencies: dict[str, list[float]] = {}
        for phase, action in actions.items():
            if phase == "deleted":  # what is kept for the objects is seen only as long as they exist
                await asyncio.sleep(SETTLING)
                memory = operator.memory
            started = time.perf_counter()
            latencies[phase] = await load(action, names, self.board, phase, pace)
            duration += time.perf_counter() - started
        await asyncio.sleep(SETTLING)
        after = self.observe(operator)
        if "deleted" not in actions:
            memory = after.memory
        return await self.summarize(before, dataclasses.replace(after, memory=memory), latencies, duration)

    async def summarize(
        self, before: Usage, after: Usage, latencies: Mapping[str, Sequence[float]], duration: float
    ) -> Cost:
        """Spread what was consumed over the objects."""
        requests = await self.client.read_counters()
        percentiles = {phase: get_percentiles(values) for phase, values in latencies.items()}
        p50, p99 = next(iter(percentiles.values()))
        count = len(next(iter(latencies.values())))
        return Cost(
            cpu=(after.cpu - before.cpu) * 1000 / count,
            memory=(after.memory - before.memory) / count,
            calls=None if requests is None else (sum(requests.values()) - self.client.requests) / count,
            p50=p50,
            p99=p99,
            cluster_cpu=_subtract(after.cluster_cpu, before.cluster_cpu, count),
            duration=duration,
            latencies=percentiles,
            requests=requests,
        )


def _subtract(after: float | None, before: float | None, count: int) -> float | None:
    return None if after is None or before is None else (after - before) * 1000 / count


def make_names(prefix: str, count: int) -> Sequence[str]:
    return [f"{prefix}-{index:06}" for index in range(count)]


def get_percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Get p50 & p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000
