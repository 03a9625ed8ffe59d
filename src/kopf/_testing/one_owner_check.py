"""
The check that each object has one owner: no two replicas may run handlers of the same object at the same time.

A replica holds an object from the beginning of a handler's attempt to its end. A frozen or killed replica holds
nothing. A replica that thaws in the middle of an attempt may end it at that very moment: it cannot know better before
its first step.
"""

from __future__ import annotations

import dataclasses
import math
import re

import kopf_cluster
from kopf._controller.instruments import Execute
from kopf._handlers.attempts import Attempt, Outcome, name_reason
from kopf._handlers.causes import Cause, ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import Handler
from kopf._replay.calls import locate
from kopf._testing.simulated_process import current_process
from kopf._virtual_time.journal import Journal, describe_changes

_SHARED = ("index", "webhook")
"""The reasons for which every replica calls handlers of every object."""
_PROGRESS = re.compile(r"[+-]?metadata\.(finalizers|annotations.*kopf\.zalando\.org/)")


@dataclasses.dataclass(eq=False)
class Hold:
    """An attempt of a handler in progress: the replica holds the object until it ends."""

    replica: str
    handler: str
    uid: str
    place: str
    idle_until: float = -math.inf
    """Until when the replica was frozen, so that the handler could do nothing."""


class OneOwnerCheck:
    """Watches the attempts and the writes of all replicas for violations."""

    def __init__(self, journal: Journal) -> None:
        self.violations: dict[str, None] = {}
        """Descriptions of the violations, in the order in which they happened."""
        self._journal = journal
        self._holds: dict[Hold, None] = {}

    async def intercept(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        """Make the attempt, and hold the object meanwhile."""
        process = current_process.get()
        uid = cause.body.object.head.uid if isinstance(cause, ResourceCause) else None
        if process is None or process.is_dead or uid is None or name_reason(handler, cause) in _SHARED:
            return await execute(handler, cause, attempt, around)
        hold = Hold(process.name, handler.id, uid, str(locate(cause)))
        self._holds[hold] = None
        self._check(hold)
        try:
            return await execute(handler, cause, attempt, around)
        finally:
            self._check(hold)
            self._holds.pop(hold, None)

    def freeze(self, replica: str) -> None:
        """Note that the replica is frozen: it does nothing from now on."""
        self._idle(replica, math.inf)

    def thaw(self, replica: str) -> None:
        """Note that the replica goes on."""
        self._idle(replica, self._journal.now)

    def end(self, replica: str) -> None:
        """Note that the replica is dead: it holds nothing."""
        self._holds = {hold: None for hold in self._holds if hold.replica != replica}

    def check(self) -> None:
        """Raise :class:`AssertionError` if two replicas held the same object at the same time."""
        for hold in [*self._holds]:
            self._check(hold)
        if self.violations:
            raise AssertionError("\n".join(["Two replicas handled one object at the same time:", *self.violations]))

    def note_change(self, seen: kopf_cluster.Observation) -> None:
        """Check a change of an object: no replica may write the progress of an object that another one holds."""
        if not self._holds or seen.type != "MODIFIED" or seen.before is None:
            return
        for other in self._list_rivals(seen.user, seen.before["metadata"]["uid"]):
            if any(map(_PROGRESS.match, describe_changes(seen.before, seen.after))):
                self._note(f"{seen.user} has written the progress of {other.place}", other)

    def _idle(self, replica: str, until: float) -> None:
        for hold in self._holds:
            if hold.replica == replica:
                hold.idle_until = until

    def _check(self, hold: Hold) -> None:
        if hold in self._holds and self._is_active(hold):
            for other in self._list_rivals(hold.replica, hold.uid):
                self._note(f"{hold.replica} was in {hold.handler!r} of {hold.place}", other)

    def _list_rivals(self, replica: str, uid: str) -> list[Hold]:
        return [hold for hold in self._holds if hold.uid == uid and hold.replica != replica and self._is_active(hold)]

    def _is_active(self, hold: Hold) -> bool:
        return self._journal.now > hold.idle_until

    def _note(self, what: str, other: Hold) -> None:
        self.violations[f"{self._journal.now:12.3f}  {what} while {other.replica} was in {other.handler!r}"] = None
