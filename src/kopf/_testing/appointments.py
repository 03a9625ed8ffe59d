"""
Appointments: what is to be done at a specific moment of the story, which is counted in writes or changes, not in time.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import kopf_cluster
from kopf._testing.crashes import is_write_of
from kopf._testing.simulation_errors import SimulationError

Deed = Callable[[], Coroutine[Any, Any, None] | kopf_cluster.FaultRule | None]
"""What is to be done. Coroutines go on meanwhile; a rule is for the very request at which it is done."""
Moment = Literal["write", "change", "step"]
"""What is counted: the requests of the operator to write, all changes in the cluster, or those made by the test."""


@dataclasses.dataclass
class _Appointment:
    moment: Moment
    left: int
    do: Deed


class Appointments:
    """
    Counts what happens, and does what is appointed.

    :param user: the name of the user that the operator is for the cluster.
    :param report: who is told if that what is appointed has failed.
    """

    def __init__(self, user: str, report: Callable[[SimulationError], None]) -> None:
        self._user = user
        self._report = report
        self._appointments: list[_Appointment] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, moment: Moment, number: int, do: Deed) -> None:
        """Appoint it for the moment of this number from now on: 1 is for the next one."""
        if number < 1:
            raise ValueError(f"The moments are counted from 1 on, not from {number}.")
        self._appointments.append(_Appointment(moment, number, do))

    def advise(self, call: Any, request: Any) -> kopf_cluster.FaultRule | None:
        """Look at a request; tell what to do with it if that is appointed."""
        return self._come("write") if is_write_of(self._user, call, request) else None

    def note_change(self, author: str) -> None:
        """Notice a change in the cluster; nobody knows of it yet."""
        self._come("change")
        if author != self._user and not author.startswith("system:"):
            self._come("step")

    def _come(self, moment: Moment) -> kopf_cluster.FaultRule | None:
        advice = None
        for appointment in [*self._appointments]:
            if appointment.moment == moment:
                appointment.left -= 1
                if not appointment.left:
                    self._appointments.remove(appointment)
                    advice = self._do(appointment.do) or advice
        return advice

    def _do(self, do: Deed) -> kopf_cluster.FaultRule | None:
        deed = do()
        if deed is None or isinstance(deed, kopf_cluster.FaultRule):
            return deed
        task = asyncio.create_task(deed, name="appointment of the simulation")
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return None

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(SimulationError(f"What was appointed has failed: {error!r}"))
