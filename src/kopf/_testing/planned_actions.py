"""
Planned actions: what is done at specific moments of the story, which are counted in writes or changes, not in time.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import kopf_cluster
from kopf._virtual_time.patience import SimulationError

Action = Callable[[], Coroutine[Any, Any, None] | kopf_cluster.FaultRule | None]
"""What is to be done. Coroutines go on meanwhile; a rule is for the very request at which it is done."""
Moment = Literal["write", "change", "step"]
"""What is counted: the requests of the operator to write, all changes in the cluster, or those made by the test."""

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclasses.dataclass(eq=False)
class PlannedAction:
    """What is to be done, and at which of the next moments of that kind: 1 is for the next one."""

    moment: Moment
    left: int
    do: Action


class PlannedActions:
    """
    Counts what happens, and does what is planned.

    :param user: the name of the user that the operator is for the cluster.
    :param report: who is told if that what is planned has failed.
    """

    def __init__(self, user: str, report: Callable[[SimulationError], None]) -> None:
        self.writes = 0
        """How many writes the operator has requested."""
        self._user = user
        self._report = report
        self._planned: list[PlannedAction] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, moment: Moment, number: int, do: Action) -> PlannedAction:
        """Plan it for the moment of this number from now on."""
        if number < 1:
            raise ValueError(f"The {moment}s are counted from 1 on, not from {number}.")
        planned = PlannedAction(moment, number, do)
        self._planned.append(planned)
        return planned

    def cancel(self, planned: PlannedAction | None) -> None:
        """Do not do it, if it is not done yet."""
        if planned in self._planned:
            self._planned.remove(planned)

    def advise(self, call: Any, request: Any) -> kopf_cluster.FaultRule | None:
        """
        Look at a request; tell what to do with it if that is planned.

        Kubernetes events are not counted: they come and go in the background.
        """
        if request.user.name != self._user or call.verb not in _WRITES or call.plural == "events":
            return None
        self.writes += 1
        return self._come("write")

    def note_change(self, author: str) -> None:
        """Notice a change in the cluster; nobody knows of it yet."""
        self._come("change")
        if author != self._user and not author.startswith("system:"):
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
        """Do this meanwhile."""
        task = asyncio.create_task(coro, name="planned action of the simulation")
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(SimulationError(f"What was planned has failed: {error!r}"))
