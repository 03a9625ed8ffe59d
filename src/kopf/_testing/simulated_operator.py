"""
The operator of a simulation: it is stopped, crashes, and starts again, on demand.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf_cluster
from kopf._controller.instruments import NO_INSTRUMENTS
from kopf._testing.planned_actions import PlannedAction, PlannedActions
from kopf._testing.simulated_process import ProcessOptions, SimulatedProcess
from kopf._testing.simulation_core import SimulationCore
from kopf._virtual_time.patience import NOT_BEGUN, SimulationError


class SimulatedOperator(SimulationCore):
    """
    What happens to the operator. Each time, it begins as a new process.

    Large because it has two faces: for the tests, whose time passes meanwhile, and for what happens by itself.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.instruments = NO_INSTRUMENTS
        """What the next operators are made with: they can be recorded."""
        self._actions = PlannedActions(self.user, self.fail)
        self._planned_crash: PlannedAction | None = None
        self._planned_downtime = 0.0
        self._birth: ProcessOptions | None = None
        self._process: SimulatedProcess | None = None

    @property
    def writes(self) -> int:
        """How many writes the operator has requested so far, except for those of Kubernetes events."""
        return self._actions.writes

    @property
    def is_running(self) -> bool:
        """Whether the operator runs."""
        return self._process is not None and self._process.is_running

    async def stop(self) -> None:
        """Let the operator exit in order, as on SIGTERM. Its error is raised if it has failed."""
        await self.wait(self.end_process())

    async def crash(self) -> None:
        """Let the operator die as on SIGKILL: nothing is said goodbye to."""
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
        Let the operator die at its ``write``-th write from now on: when it is done, but not answered yet.

        With ``before``, it is not done. With ``restart``, a new operator starts after the ``downtime`` (in seconds).
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
        """Start the operator, after it is stopped in order if it runs."""
        await self.wait(self.restart_now())

    async def downtime(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Stop the operator in order if it runs, let the time pass, and start it."""
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
            self._process = None  # the error is told right now, and not once again in the end
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

    def cut_network(self) -> None:
        if self._process is not None:
            self._process.network.cut()

    def mend_network(self) -> None:
        if self._process is not None:
            self._process.network.mend()
