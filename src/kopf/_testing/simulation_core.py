"""
The base of all parts of a simulation: the cluster, its time, and waiting in this time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import kopf_cluster
from kopf._testing.simulated_process import current_process
from kopf._virtual_time.journal import Journal, SimulatedLogs
from kopf._virtual_time.patience import NOT_BEGUN, SimulationError
from kopf._virtual_time.simulated_clock import SimulatedClock
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

T = TypeVar("T")


class SimulationCore:
    """
    A cluster in an event loop with virtual time.

    Large because all parts of a simulation share it.

    :param slack: additional seconds of the virtual time for all timeouts.
    """

    def __init__(self, cluster: kopf_cluster.LocalCluster, user: str, clock: SimulatedClock, *, slack: float) -> None:
        self.cluster = cluster
        """The local cluster."""
        self.user = user
        """The name of the operator's user in the cluster."""
        self.journal = Journal(lambda: self.now)
        """The history: the calls of handlers, the changes of objects, the starts and exits of the operator."""
        self.logs = SimulatedLogs(lambda: self.now)
        """The log messages of the operator."""
        self._clock = clock
        self._slack = slack
        self._own_loop: VirtualTimeLoop | None = None
        self._problem: SimulationError | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._news, self._activity = asyncio.Event(), 0

    @property
    def _loop(self) -> VirtualTimeLoop:
        if self._own_loop is None:
            raise SimulationError(NOT_BEGUN)
        return self._own_loop

    @property
    def now(self) -> float:
        """The time since the beginning of the simulation, in seconds of the virtual time."""
        return self._loop.elapsed

    @property
    def wall_clock(self) -> datetime.datetime:
        """The date and time in the simulation."""
        return self._clock.now()

    def move_wall_clock(self, seconds: float) -> None:
        """Move the wall clock, while no time passes."""
        self._clock.move(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call the function after this number of seconds."""
        return self._loop.call_later(seconds, function)

    def real_time(self) -> contextlib.AbstractContextManager[None]:
        """Let the real time pass inside of this context, for clients in other processes."""
        return self._loop.real_time()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let this much time pass, and do all work that is due by then; with no time, the work that is due now."""
        duration = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not math.isfinite(duration):
            raise ValueError(f"Time moves forward by a number of seconds, not by {duration}.")
        if duration < 0:
            raise ValueError("Time only moves forward. To move the wall clock, use simulation.faults.clock_jump().")
        await self.wait(self._advance(duration))

    async def _advance(self, duration: float) -> None:
        await asyncio.sleep(duration)
        await self._loop.be_idle()

    async def until(self, condition: Callable[[], object], *, timeout: float = 60.0) -> None:
        """
        Let time pass until the condition, a function or a coroutine function, returns a true value.

        Raises :class:`TimeoutError` if it does not within ``timeout`` seconds.
        """
        if not callable(condition):
            raise TypeError(f"The condition must be a function, which is called repeatedly, not {condition!r}.")
        if not await self.wait(self._check_until(condition, timeout + self._slack)):
            raise TimeoutError(f"The condition is not true in {timeout:g} seconds: {_describe(condition)}")

    async def _check_until(self, condition: Callable[[], object], timeout: float) -> bool:
        deadline = self.now + timeout
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return True
            if self.now >= deadline:
                return False
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, deadline - self.now)):
                    await self._news.wait()

    async def wait(self, coro: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Wait for the coroutine, unless the simulation has a problem, or the operator has failed."""
        if (problem := self._find_misuse() or self._problem) is not None:
            if inspect.iscoroutine(coro):
                coro.close()
            raise problem
        task = asyncio.ensure_future(coro)
        outer, self._waiting = self._waiting, task
        try:
            await asyncio.wait([task])
        finally:
            self._waiting = outer
            task.cancel()
        if self._problem is not None:
            raise self._problem
        self.raise_failure()
        return task.result()

    def _find_misuse(self) -> SimulationError | None:
        if self._own_loop is None:
            return SimulationError(NOT_BEGUN)
        if asyncio.get_running_loop() is not self._own_loop:
            return SimulationError("The simulation has its own event loop: it cannot be used from another one.")
        if current_process.get() is not None:
            return SimulationError("The simulation is for the test: handlers must not use it.")
        return None

    def raise_failure(self) -> None:
        """Raise the error that has ended the operator, once."""

    def fail(self, problem: SimulationError) -> None:
        """Raise this problem in the waiting test."""
        self._problem = problem
        if self._waiting is not None:
            self._waiting.cancel()

    def notice(self) -> None:
        """Note that something has happened: nothing is settled yet, and conditions are checked again."""
        self._activity += 1
        self._news.set()


def _describe(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
