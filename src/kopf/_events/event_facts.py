"""The facts of Kubernetes events: those that were posted, and those that were not."""

from __future__ import annotations

from kopf._events.event_records import EventReport
from kopf._facts.bus import Fact


class EventPosted(Fact, frozen=True, eq=False):
    """A Kubernetes event was created, or a series of them was continued."""

    report: EventReport
    at: float


class EventDropped(Fact, frozen=True, eq=False):
    """A Kubernetes event is lost."""

    cause: str
    """``limit`` if there were too many about the object, ``overflow`` if too many wait, ``error`` if it was refused."""
