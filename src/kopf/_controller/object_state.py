"""A mailbox: what has arrived for one object, and what is remembered of it while there is something to do."""

from __future__ import annotations

import asyncio
from collections import deque

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.changes.reconciliation import Reconciliation
from kopf._controller.changes.saving import Known, Unsaved
from kopf._controller.own_writes import OwnWrites
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject


class ObjectState:
    """
    The mail of one object. It exists only while something is going on with the object.

    Raw events are delivered one by one. Of the states, only the latest one counts: it replaces all that was there.
    """

    __slots__ = (
        "active",
        "afterlife",
        "baseline",
        "called",
        "conflicts",
        "cycle",
        "errors",
        "gone",
        "handling",
        "initial",
        "key",
        "known",
        "last_error",
        "progress",
        "raw_events",
        "revisited",
        "state",
        "suspect",
        "suspicion",
        "timer",
        "unsaved",
        "writes",
    )

    def __init__(self, key: str, *, comparable_versions: bool) -> None:
        self.key = key
        self.raw_events: deque[WatchEvent] = deque()
        self.state: KubeObject | None = None
        """The latest state that is not handled yet."""
        self.known: KubeObject | None = None
        """The state as of the last handling, to return to when the timer fires."""
        self.suspect: KubeObject | None = None
        """The latest of the states that are presumed to be older than our own write."""
        self.suspicion: asyncio.TimerHandle | None = None
        """When the suspect is to be trusted after all."""
        self.revisited = False
        """Whether it was asked to look at the object again since its last handling has begun."""
        self.gone = False
        """Whether the object does not exist anymore."""
        self.afterlife: list[WatchEvent] | None = None
        """What has come after the object was gone, to be taken in when it is forgotten: it is back, or another one."""
        self.initial = False
        """Whether the object existed before the operator started, and is not resumed yet."""
        self.called: set[HandlerId] | None = None
        """Which handlers were called since the operator has started; ``None`` if the object is not to be resumed."""
        self.active = False
        """Whether it is being handled, or waits in the queue for that."""
        self.handling = False
        """Whether a state of the object is being handled right now."""
        self.cycle: Reconciliation | None = None
        """The current handling of the object."""
        self.timer: asyncio.TimerHandle | None = None
        self.writes = OwnWrites(comparable=comparable_versions)
        self.unsaved: Unsaved | None = None
        self.progress: Known | None = None
        """The progress in the state that is to be handled next, if it was just saved by us."""
        self.baseline: bytes | None = None
        """The state of the object as of the beginning of its creation, while that is in progress."""
        self.errors = 0
        """How many times in a row the handling has failed because of us or of the API (not of the handlers)."""
        self.last_error: str | None = None
        self.conflicts = 0
        """How many times in a row the patches were refused with nothing new on the stream that would explain it."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (
            self.active
            or self.raw_events
            or self.state is not None
            or self.timer is not None
            or self.writes.expecting
            or self.unsaved is not None
            or self.initial
        )

    def deliver(self, obj: KubeObject) -> None:
        """
        Put the new state in. It interrupts the waiting for retries.

        After errors, only deletions do, and the edits that can be the cure: otherwise, those who change the object all
        the time (its status, usually) would make us repeat what has failed all the time.
        """
        self.state = obj
        self.progress = None
        self.stop_suspecting()
        self.conflicts = 0
        if not self.errors or self.known is None or is_overtaking(obj, self.known):
            self.stop_timer()

    @property
    def is_saving(self) -> bool:
        """Whether what the handlers have done is being written to the object right now."""
        return self.cycle is not None and self.cycle.is_saving

    def stop_suspecting(self) -> None:
        """Forget the suspect: it is either known to be old, or replaced by something newer."""
        self.suspect = None
        if self.suspicion is not None:
            self.suspicion.cancel()
            self.suspicion = None

    def stop_timer(self) -> None:
        """Forget the scheduled continuation, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def is_overtaking(state: KubeObject, obj: KubeObject) -> bool:
    """Tell if the state is worth trying again what has failed for the object: a deletion, or a different spec."""
    is_deletion = state.head.deletionTimestamp is not None and obj.head.deletionTimestamp is None
    return is_deletion or state.head.generation != obj.head.generation
