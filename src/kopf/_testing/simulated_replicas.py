"""
Several replicas of an operator in one simulation, each a process of its own: they are killed, frozen, cut off, one by
one, and their number is changed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from kopf._controller.instruments import Instruments
from kopf._handlers.time_source import time_source
from kopf._settings.settings import OperatorSettings
from kopf._testing.ownership import Ownership
from kopf._testing.simulated_process import ProcessOptions, SimulatedProcess
from kopf._testing.simulation_core import SimulationCore
from kopf._virtual_time.patience import SimulationError
from kopf._virtual_time.simulated_clock import SkewedClock

Configure = Callable[[OperatorSettings], object]
"""Changes the settings of a replica before it starts."""


class Replica:
    """
    One of the replicas. Each time it starts, it is a new process of the same name, as in a stateful set.

    Whatever needs no waiting, happens at this very moment, so that it can be planned: ``simulation.when(write=3,
    do=replica.freeze)``.

    Large because so much can happen to a replica.
    """

    def __init__(self, simulation: SimulationCore, options: ProcessOptions, ownership: Ownership) -> None:
        self.name = options.name
        """How it is called: in the journal and the logs, among the replicas, and as a user of the cluster."""
        self._simulation = simulation
        self._ownership = ownership
        self._clock = SkewedClock(options.context[time_source])
        context = options.context.copy()
        context.run(time_source.set, self._clock)
        self._options = dataclasses.replace(options, context=context)
        self._process: SimulatedProcess | None = None
        self._burial: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a process, be it frozen or cut off."""
        return self._process is not None and self._process.is_running

    @property
    def is_stuck(self) -> bool:
        """Whether it is frozen or cut off."""
        return self._process is not None and self._process.is_stuck

    async def start(self) -> None:
        """Start a new process, and wait until it is ready."""
        await self._simulation.wait(self.start_now())

    async def stop(self) -> None:
        """Let it exit in order, as on SIGTERM, and wait for that. Its error is raised if it has failed."""
        await self._simulation.wait(self.stop_now())

    def kill(self) -> None:
        """Let it die as on SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._ownership.end(self.name)
            self._note("is killed")
            self._burial = self._options.loop.create_task(process.clean_up(), name=f"end of {self.name}")

    def freeze(self) -> None:
        """Let nothing of it run, as on SIGSTOP, while all the clocks go on; its connections remain."""
        if self._process is not None:
            self._process.freeze()
            self._ownership.freeze(self.name)
            self._note("is frozen")

    def thaw(self) -> None:
        """Let it go on, as on SIGCONT."""
        if self._process is not None:
            self._note("thaws")
            self._ownership.thaw(self.name)
            self._process.thaw()

    def partition(self) -> None:
        """Let nothing through between it and the cluster, with nobody told; what is sent, comes when it is healed."""
        if self._process is not None:
            self._process.network.cut()
            self._note("is cut off")

    def heal(self) -> None:
        """Let everything through again."""
        if self._process is not None:
            self._process.network.mend()
            self._note("is connected again")

    def skew_clock(self, seconds: float) -> None:
        """
        Move its wall clock, forward or backward if negative, also for its next processes; delays are not affected.

        It is the clock of the framework: ``datetime.now()`` in handlers tells the time of the simulation.
        """
        self._clock.skew += seconds
        self._note(f"has a clock that is off by {self._clock.skew:g}s")

    async def start_now(self) -> None:
        if self._process is not None:
            raise SimulationError(f"{self.name} runs already.")
        instruments = Instruments(interceptors=[self._ownership.intercept])
        process = self._process = SimulatedProcess(self._options, instruments)
        self._note("starts")
        try:
            await process.start()
        except BaseException:
            self._process = None
            raise
        self._simulation.notice()

    async def stop_now(self) -> None:
        process = self._process
        if process is not None:
            await process.stop()
            if not process.is_dead:
                self._process = None
                self._note("exits")

    async def end(self) -> None:
        """Leave nothing behind: if it cannot exit in order, it is killed."""
        if self.is_stuck:
            self.kill()
        await self.stop_now()
        if self._burial is not None:
            await self._burial

    def raise_failure(self) -> None:
        """Raise the error with which it has ended by itself, once."""
        process = self._process
        if process is not None and not process.is_running and not process.is_stopping:
            self._process = None
            process.check()

    def _note(self, what: str) -> None:
        self._simulation.journal.note(f"{self.name} {what}")
        self._simulation.notice()


class Replicas:
    """All the replicas, by their numbers or names; those too that do not run."""

    def __init__(
        self,
        simulation: SimulationCore,
        make_options: Callable[[str], ProcessOptions],
        prefix: str,
        ownership: Ownership,
    ) -> None:
        self._simulation = simulation
        self._make_options = make_options
        self._prefix = prefix
        self._ownership = ownership
        self._replicas: list[Replica] = []

    def __iter__(self) -> Iterator[Replica]:
        return iter([*self._replicas])

    def __len__(self) -> int:
        return len(self._replicas)

    def __getitem__(self, key: int | str) -> Replica:
        names = [replica.name for replica in self._replicas]
        return self._replicas[names.index(key) if isinstance(key, str) else key]

    async def scale(self, count: int) -> None:
        """Start those of the first so many replicas that do not run, and stop the others in order; wait for that."""
        await self._simulation.wait(self.scale_now(count))

    async def stop(self) -> None:
        """Stop all of them in order, at once."""
        await self.scale(0)

    def assert_one_owner(self) -> None:
        """
        Raise :class:`AssertionError` if any two replicas of the simulation were in handlers of the same object at once.

        Or if one has written to an object its progress or finalizers while another one was in a handler of it.
        """
        self._ownership.check()

    async def scale_now(self, count: int) -> None:
        while len(self._replicas) < count:
            options = self._make_options(f"{self._prefix}-{len(self._replicas)}")
            self._replicas.append(Replica(self._simulation, options, self._ownership))
        starting = [replica.start_now() for replica in self._replicas[:count] if not replica.is_running]
        await _do_all([*starting, *(replica.stop_now() for replica in self._replicas[count:])])

    async def end(self) -> None:
        await _do_all([replica.end() for replica in self._replicas])

    def raise_failure(self) -> None:
        for replica in self._replicas:
            replica.raise_failure()


async def _do_all(coros: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at once, to the end; then raise an error if there is any."""
    results = await asyncio.gather(*coros, return_exceptions=True)
    if errors := [result for result in results if isinstance(result, BaseException)]:
        raise errors[0]
