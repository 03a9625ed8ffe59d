"""
Several replicas of an operator in one simulation, each in its own process. Tests can kill, freeze, or cut off each
replica, and change their number.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from kopf._controller.instruments import Instruments
from kopf._handlers.time_source import time_source
from kopf._settings.settings import OperatorSettings
from kopf._testing.one_owner_check import OneOwnerCheck
from kopf._testing.simulated_process import ProcessOptions, SimulatedProcess
from kopf._testing.simulation_core import SimulationCore
from kopf._virtual_time.patience import SimulationError
from kopf._virtual_time.simulated_clock import SkewedClock

Configure = Callable[[OperatorSettings], object]
"""Changes the settings of a replica before it starts."""


class Replica:
    """
    A replica of the operator. Each start is a new process with the same name, as in a stateful set.

    Methods that are not coroutines take effect immediately, so that they can be scheduled: ``simulation.when(write=3,
    do=replica.freeze)``.

    Large because so much can happen to a replica.
    """

    def __init__(self, simulation: SimulationCore, options: ProcessOptions, one_owner: OneOwnerCheck) -> None:
        self.name = options.name
        """Its name in the journal, in the logs, among the replicas, and as a user of the cluster."""
        self._simulation = simulation
        self._one_owner = one_owner
        self._clock = SkewedClock(options.context[time_source])
        context = options.context.copy()
        context.run(time_source.set, self._clock)
        self._options = dataclasses.replace(options, context=context)
        self._process: SimulatedProcess | None = None
        self._burial: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has a process, even a frozen or cut-off one."""
        return self._process is not None and self._process.is_running

    @property
    def is_stuck(self) -> bool:
        """Whether it is frozen or cut off."""
        return self._process is not None and self._process.is_stuck

    async def start(self) -> None:
        """Start a new process, and wait until it is ready."""
        await self._simulation.wait(self.start_now())

    async def stop(self) -> None:
        """Let it exit gracefully, as on SIGTERM, and wait for the exit. Raises its error if it has failed."""
        await self._simulation.wait(self.stop_now())

    def kill(self) -> None:
        """Kill it, as with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._one_owner.end(self.name)
            self._note("is killed")
            self._burial = self._options.loop.create_task(process.clean_up(), name=f"end of {self.name}")

    def freeze(self) -> None:
        """Freeze it, as with SIGSTOP: its code does not run, but all clocks go on, and its connections remain."""
        if self._process is not None:
            self._process.freeze()
            self._one_owner.freeze(self.name)
            self._note("is frozen")

    def thaw(self) -> None:
        """Let it continue, as with SIGCONT."""
        if self._process is not None:
            self._note("thaws")
            self._one_owner.thaw(self.name)
            self._process.thaw()

    def partition(self) -> None:
        """Cut it off from the cluster: nothing gets through or fails; sent data arrives after :meth:`heal`."""
        if self._process is not None:
            self._process.network.cut()
            self._note("is cut off")

    def heal(self) -> None:
        """Connect it to the cluster again."""
        if self._process is not None:
            self._process.network.mend()
            self._note("is connected again")

    def skew_clock(self, seconds: float) -> None:
        """
        Move its wall clock forward, or backward if negative. The skew outlasts restarts; delays are not affected.

        Only Kopf uses this clock: ``datetime.now()`` in handlers returns the time of the simulation.
        """
        self._clock.skew += seconds
        self._note(f"has a clock that is off by {self._clock.skew:g}s")

    async def start_now(self) -> None:
        if self._process is not None:
            raise SimulationError(f"{self.name} is already running.")
        instruments = Instruments(interceptors=[self._one_owner.intercept])
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
        """Stop it, or kill it if it cannot exit gracefully, and wait until nothing of it is left."""
        if self.is_stuck:
            self.kill()
        await self.stop_now()
        if self._burial is not None:
            await self._burial

    def raise_failure(self) -> None:
        """Raise the error that has ended it, if any; only once."""
        process = self._process
        if process is not None and not process.is_running and not process.is_stopping:
            self._process = None
            process.check()

    def _note(self, what: str) -> None:
        self._simulation.journal.note(f"{self.name} {what}")
        self._simulation.notice()


class Replicas:
    """All replicas, running or not, by their numbers or names."""

    def __init__(
        self,
        simulation: SimulationCore,
        make_options: Callable[[str], ProcessOptions],
        prefix: str,
        one_owner: OneOwnerCheck,
    ) -> None:
        self._simulation = simulation
        self._make_options = make_options
        self._prefix = prefix
        self._one_owner = one_owner
        self._replicas: list[Replica] = []

    def __iter__(self) -> Iterator[Replica]:
        return iter([*self._replicas])

    def __len__(self) -> int:
        return len(self._replicas)

    def __getitem__(self, key: int | str) -> Replica:
        names = [replica.name for replica in self._replicas]
        return self._replicas[names.index(key) if isinstance(key, str) else key]

    async def scale(self, count: int) -> None:
        """Run exactly the first ``count`` replicas: start them, stop the others gracefully; wait for both."""
        await self._simulation.wait(self.scale_now(count))

    async def stop(self) -> None:
        """Stop all replicas gracefully, at the same time."""
        await self.scale(0)

    def assert_one_owner(self) -> None:
        """
        Raise :class:`AssertionError` if two replicas ran handlers of the same object at the same time.

        Or if a replica wrote the progress or finalizers of an object while another one ran a handler for the object.
        """
        self._one_owner.check()

    async def scale_now(self, count: int) -> None:
        while len(self._replicas) < count:
            options = self._make_options(f"{self._prefix}-{len(self._replicas)}")
            self._replicas.append(Replica(self._simulation, options, self._one_owner))
        starting = [replica.start_now() for replica in self._replicas[:count] if not replica.is_running]
        await _do_all([*starting, *(replica.stop_now() for replica in self._replicas[count:])])

    async def end(self) -> None:
        await _do_all([replica.end() for replica in self._replicas])

    def raise_failure(self) -> None:
        for replica in self._replicas:
            replica.raise_failure()


async def _do_all(coros: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all of them at the same time, to the end; then raise the first error, if any."""
    results = await asyncio.gather(*coros, return_exceptions=True)
    if errors := [result for result in results if isinstance(result, BaseException)]:
        raise errors[0]
