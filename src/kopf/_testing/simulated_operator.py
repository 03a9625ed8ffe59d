"""
The operator of a simulation: it is stopped, crashes, and starts again, on demand.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from kopf._testing.crashes import CrashPlan
from kopf._testing.journal import Journal
from kopf._testing.lives import Birth, Life
from kopf._testing.simulation_errors import NOT_BEGUN, SimulationError

T = TypeVar("T")


class SimulatedOperator(abc.ABC):
    """
    What happens to the operator. Each life of it begins as that of a new process.

    Large because it has two faces: for the tests, whose time passes meanwhile, and for what happens by itself.
    """

    journal: Journal
    """What has happened: the calls of handlers, the changes of objects, the lives of the operator."""
    user: str
    """The name of the user that the operator is for the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._crashes = CrashPlan(self)
        self._birth: Birth | None = None
        self._life: Life | None = None

    @abc.abstractmethod
    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass."""

    @abc.abstractmethod
    def notice(self) -> None:
        """Something has happened."""

    @abc.abstractmethod
    async def wait(self, coro: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Wait for what must come, unless something is wrong with the simulation."""

    @property
    def writes(self) -> int:
        """How many writes the operator has requested so far, except for those of Kubernetes events."""
        return self._crashes.count

    @property
    def is_running(self) -> bool:
        """Whether the operator runs."""
        return self._life is not None and self._life.is_running

    async def stop(self) -> None:
        """Let the operator exit in order, as on SIGTERM. Its error is raised if it has failed."""
        await self.wait(self.end_life())

    async def crash(self) -> None:
        """Let the operator die as on SIGKILL: nothing is said goodbye to."""
        await self.wait(self.crash_now())

    def crash_after(
        self, *, write: int, before: bool = False, restart: bool = False, downtime: float = 0.0,
    ) -> None:
        """
        Let the operator die at its ``write``-th write from now on: when it is done, but not answered yet.

        With ``before``, it is not done. With ``restart``, a new operator starts after the ``downtime`` (in seconds).
        """
        self._crashes.plan(write, before=before, restart=restart, downtime=downtime)

    async def restart(self) -> None:
        """Start the operator, after it is stopped in order if it runs."""
        await self.wait(self.restart_now())

    async def downtime(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Stop the operator in order if it runs, let the time pass, and start it."""
        await self.stop()
        await self.advance(hours=hours, minutes=minutes, seconds=seconds)
        await self.restart()

    async def restart_now(self) -> None:
        await self.end_life()
        if self._birth is None:
            raise SimulationError(NOT_BEGUN)
        life = self._life = Life(self._birth)
        self.journal.note("the operator starts")
        try:
            await life.start()
        except BaseException:
            self._life = None  # the error is told right now, and not once again in the end
            raise

    async def crash_now(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.kill()
            self.journal.note("the operator crashes")
            await life.bury()

    async def downtime_now(self, seconds: float) -> None:
        await self.crash_now()
        await asyncio.sleep(seconds)
        await self.restart_now()

    def raise_failure(self) -> None:
        """Raise the error with which the operator has ended by itself, once."""
        life = self._life
        if life is not None and not life.is_running and not life.is_dead:
            self._life = None
            life.check()

    def cut_off_now(self) -> None:
        """Let nothing come out of the operator any more; it is to be buried soon."""
        if self._life is not None:
            self._life.kill()

    async def end_life(self) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        if life.is_dead:
            await life.bury()
        elif life.is_running:
            await life.stop()
            self.journal.note("the operator exits")
        else:
            life.check()

    def cut_network(self) -> None:
        if self._life is not None:
            self._life.network.cut()

    def mend_network(self) -> None:
        if self._life is not None:
            self._life.network.mend()
