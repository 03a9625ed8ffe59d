"""
Crashes at a specific write: the operator dies at the very moment when the cluster gets its request.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Protocol

import kopf_cluster

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def is_write_of(user: str, call: Any, request: Any) -> bool:
    """Whether the user requests a write by that. Events are not counted: they come and go in the background."""
    return request.user.name == user and call.verb in _WRITES and call.plural != "events"


class Victim(Protocol):
    """The simulation, as far as it is needed here."""

    user: str

    def cut_off_now(self) -> None: ...
    def notice(self) -> None: ...
    async def crash_now(self) -> None: ...
    async def restart_now(self) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crash:
    """When to die, and what is next."""

    write: int
    before: bool
    restart: bool
    downtime: float


class CrashPlan:
    """Counts the writes of the operator, and lets it die at the planned one."""

    def __init__(self, victim: Victim) -> None:
        self.count = 0
        """How many writes the operator has requested."""
        self._victim = victim
        self._plan: Crash | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def delay(self) -> float:
        """How long it can be calm until the operator comes back, in seconds."""
        return self._plan.downtime if self._plan is not None and self._plan.restart else 0.0

    def plan(self, write: int, *, before: bool, restart: bool, downtime: float) -> None:
        """Plan the crash at the write: 1 is for the next one."""
        if write < 1:
            raise ValueError(f"The writes are counted from 1 on, not from {write}.")
        self._plan = Crash(write=self.count + write, before=before, restart=restart, downtime=downtime)

    def advise(self, call: Any, request: Any) -> kopf_cluster.FaultRule | None:
        """Look at a request; break its connection if it must not be done."""
        if not is_write_of(self._victim.user, call, request):
            return None
        self.count += 1
        plan = self._plan
        if plan is None or self.count < plan.write:
            return None
        self._plan = None
        self._victim.cut_off_now()
        task = asyncio.create_task(self._crash(plan), name="crash of the operator")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return kopf_cluster.FaultRule(action="disconnect") if plan.before else None

    async def _crash(self, plan: Crash) -> None:
        await self._victim.crash_now()
        self._victim.notice()
        if plan.restart:
            await asyncio.sleep(plan.downtime)
            await self._victim.restart_now()
            self._victim.notice()
