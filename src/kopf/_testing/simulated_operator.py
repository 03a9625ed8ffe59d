"""
The operator of a simulation: tests stop, crash, and restart it immediately, or at a specific write or change.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import kopf_cluster
from kopf._controller.instruments import NO_INSTRUMENTS
from kopf._testing.one_owner_check import OneOwnerCheck
from kopf._testing.simulated_process import ProcessOptions, SimulatedProcess
from kopf._testing.simulated_replicas import Replicas
from kopf._testing.simulation_core import SimulationCore
from kopf._virtual_time.patience import NOT_BEGUN, SimulationError

Action = Callable[[], Coroutine[Any, Any, None] | kopf_cluster.FaultRule | None]
"""A planned action. Coroutines run in the background; a returned rule is applied to the current request."""
Moment = Literal["write", "change", "step"]
"""The counted moments: the operator's write requests, all changes in the cluster, or the changes by the test."""

_NOISE = frozenset({"events", "leases"})
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclasses.dataclass(eq=False)
class PlannedAction:
    """An action, and how many moments of that kind are left until it: 1 is for the next one."""

    moment: Moment
    left: int
    do: Action


class PlannedActions:
    """
    Counts the moments, and executes the planned actions.

    :param user: the name of the operator's user in the cluster.
    :param report: called if a planned action fails.
    """

    def __init__(self, user: str, report: Callable[[SimulationError], None]) -> None:
        self.writes = 0
        """The number of writes that the operator has requested."""
        self.users = {user}
        """The names of the users of the operator and of its replicas."""
        self._report = report
        self._planned: list[PlannedAction] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, moment: Moment, number: int, do: Action) -> PlannedAction:
        """Plan an action for the moment of this number from now on."""
        if number < 1:
            raise ValueError(f"The {moment}s are counted from 1, got {number}.")
        planned = PlannedAction(moment, number, do)
        self._planned.append(planned)
        return planned

    def cancel(self, planned: PlannedAction | None) -> None:
        """Cancel the action if it is not done yet."""
        if planned in self._planned:
            self._planned.remove(planned)

    def advise(self, call: Any, request: Any) -> kopf_cluster.FaultRule | None:
        """
        Count a request, and return the fault rule for it if that is planned.

        Kubernetes events and Leases are not counted: they are written in the background.
        """
        if request.user.name not in self.users or call.verb not in _WRITES or call.plural in _NOISE:
            return None
        self.writes += 1
        return self._come("write")

    def note_change(self, author: str) -> None:
        """Count a change in the cluster, which no client has seen yet."""
        self._come("change")
        if author not in self.users and not author.startswith("system:"):
            self._come("step")

    def _come(self, moment: Moment) -> kopf_cluster.FaultRule | None:
        advice = None
        for planned in [*self._planned]:
            if planned.moment == moment:
                planned.left -= 1
                if not planned.left:
                    self._planned.remove(planned)
                    advice = self._do(planned.do) or advice
        return advice

    def _do(self, do: Action) -> kopf_cluster.FaultRule | None:
        done = do()
        if done is None or isinstance(done, kopf_cluster.FaultRule):
            return done
        self.spawn(done)
        return None

    def spawn(self, coro: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine in the background."""
        task = asyncio.create_task(coro, name="planned action of the simulation")
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(SimulationError(f"A planned action has failed: {error!r}"))


class SimulatedOperator(SimulationCore):
    """
    The life of the operator: each start is a new process.

    Large because it has two interfaces: one for tests, which let the time pass, and one for planned actions.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.instruments = NO_INSTRUMENTS
        """The instruments of the next processes, e.g. to record them."""
        self._actions = PlannedActions(self.user, self.fail)
        self._planned_crash: PlannedAction | None = None
        self._planned_downtime = 0.0
        self._birth: ProcessOptions | None = None
        self._process: SimulatedProcess | None = None
        self._replicas: list[Replicas] = []
        self._one_owner = OneOwnerCheck(self.journal)

    @property
    def writes(self) -> int:
        """The number of writes that the operator has requested so far, except for Kubernetes events."""
        return self._actions.writes

    @property
    def is_running(self) -> bool:
        """Whether the operator runs."""
        return self._process is not None and self._process.is_running

    async def stop(self) -> None:
        """Stop the operator gracefully, as with SIGTERM. Raises its error if it has failed."""
        await self.wait(self.end_process())

    async def crash(self) -> None:
        """Kill the operator, as with SIGKILL: nothing is finished or released."""
        await self.wait(self.crash_now())

    def crash_after(
        self,
        *,
        write: int,
        before: bool = False,
        restart: bool = False,
        downtime: float = 0.0,
    ) -> None:
        """
        Kill the operator at its ``write``-th write from now on: the write is done, but not answered yet.

        With ``before``, the write is not done. With ``restart``, a new operator starts after ``downtime`` seconds.
        """

        def crash() -> kopf_cluster.FaultRule | None:
            self._planned_downtime = 0.0
            if self._process is not None:
                self._process.kill()  # nothing comes out of it from this very moment
            self._actions.spawn(self.downtime_now(downtime) if restart else self.crash_now())
            return kopf_cluster.FaultRule(action="disconnect") if before else None

        planned = self._actions.add("write", write, crash)
        self._actions.cancel(self._planned_crash)
        self._planned_crash, self._planned_downtime = planned, downtime if restart else 0.0

    async def restart(self) -> None:
        """Start the operator; if it runs, stop it gracefully first."""
        await self.wait(self.restart_now())

    async def downtime(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Stop the operator gracefully if it runs, let the time pass, and start it."""
        await self.stop()
        await self.advance(hours=hours, minutes=minutes, seconds=seconds)
        await self.restart()

    async def restart_now(self) -> None:
        await self.end_process()
        if self._birth is None:
            raise SimulationError(NOT_BEGUN)
        process = self._process = SimulatedProcess(self._birth, self.instruments)
        self.journal.note("the operator starts")
        try:
            await process.start()
        except BaseException:
            self._process = None  # the error is raised now, and not once again in the end
            raise
        self.notice()

    async def crash_now(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self.journal.note("the operator crashes")
            await process.clean_up()
            self.notice()

    async def downtime_now(self, seconds: float) -> None:
        await self.crash_now()
        await asyncio.sleep(seconds)
        await self.restart_now()

    def raise_failure(self) -> None:
        process = self._process
        if process is not None and not process.is_running and not process.is_dead:
            self._process = None
            process.check()
        for group in self._replicas:
            group.raise_failure()

    async def end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.is_dead:
            await process.clean_up()
        elif process.is_running:
            await process.stop()
            self.journal.note("the operator exits")
        else:
            process.check()

    async def end_all(self) -> None:
        """Stop the operator and all replicas gracefully."""
        for group in self._replicas:
            await group.end()
        await self.end_process()

    def cut_network(self) -> None:
        if self._process is not None:
            self._process.network.cut()

    def mend_network(self) -> None:
        if self._process is not None:
            self._process.network.mend()
