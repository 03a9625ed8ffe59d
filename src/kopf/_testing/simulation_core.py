"""
What all parts of a simulation stand on: the cluster, the time, and the waiting in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

import kopf_cluster
from kopf._testing.simulated_process import current_process
from kopf._virtual_time.journal import Journal, SimulatedLogs
from kopf._virtual_time.patience import NOT_BEGUN, SimulationError
from kopf._virtual_time.simulated_clock import SimulatedClock
from kopf._virtual_time.virtual_time import VirtualTimeLoop

T = TypeVar("T")


class SimulationCore:
    """
    A cluster in an event loop with virtual time.

    Large because it is what all parts of a simulation share.

    :param slack: how much longer than it is said it is waited, in seconds of the virtual time.
    """

    def __init__(self, cluster: kopf_cluster.LocalCluster, user: str, clock: SimulatedClock, *, slack: float) -> None:
        self.cluster = cluster
        """The cluster, with all that it can do."""
        self.user = user
        """The name of the user that the operator is for the cluster."""
        self.journal = Journal(lambda: self.now)
        """What has happened: the calls of handlers, the changes of objects, the starts and ends of the operator."""
        self.logs = SimulatedLogs(lambda: self.now)
        """What the operator has logged."""
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
        """How long it has been since the beginning of the simulation, in seconds of the virtual time."""
        return self._loop.elapsed

    @property
    def wall_clock(self) -> datetime.datetime:
        """The date and time in the simulation."""
        return self._clock.now()

    def move_wall_clock(self, seconds: float) -> None:
        """Move the wall clock, with no time passing."""
        self._clock.move(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call the function in so many seconds from now on."""
        return self._loop.call_later(seconds, function)

    def real_time(self) -> contextlib.AbstractContextManager[None]:
        """Let the time go as it really goes, as long as this context lasts: for clients in other processes."""
        return self._loop.real_time()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass. All that is due by then, is done; with no time, what can be done at once."""
        duration = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not math.isfinite(duration):
            raise ValueError(f"The time goes forward by some seconds, not by {duration}.")
        if duration < 0:
            raise ValueError("The time goes forward only. To move the wall clock, use simulation.faults.clock_jump().")
        await self.wait(self._advance(duration))

    async def _advance(self, duration: float) -> None:
        await asyncio.sleep(duration)
        await self._loop.be_idle()

    async def until(self, condition: Callable[[], object], *, timeout: float = 60.0) -> None:
        """
        Let the time pass until the condition is true; it is a function, which can be asynchronous.

        Raises :class:`TimeoutError` if it is not true in so many seconds.
        """
        if not callable(condition):
            raise TypeError(f"The condition must be a function, which is called again and again, not {condition!r}.")
        if not await self.wait(self._check_until(condition, timeout + self._slack)):
            raise TimeoutError(f"It has not come so in {timeout:g} seconds: {_describe(condition)}")

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
        """Wait for what must come, unless there is a problem, or the operator has failed."""
        if (problem := self._find_misuse()) is not None:
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
        """Raise the error with which the operator has ended by itself, once."""

    def fail(self, problem: SimulationError) -> None:
        """Let those who wait have this problem."""
        self._problem = problem
        if self._waiting is not None:
            self._waiting.cancel()

    def notice(self) -> None:
        """Something has happened: it is not calm yet, and who waits, should look again."""
        self._activity += 1
        self._news.set()


def check_options(given: Collection[str], known: type) -> None:
    """Raise :class:`TypeError` if there is an option that is not in the `TypedDict`."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"There is no option {name!r} here; there are: {', '.join(names)}.")


def _describe(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
