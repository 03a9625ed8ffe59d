"""The facts of the attempts of handlers, of all kinds."""

from __future__ import annotations

from kopf._facts.bus import Fact
from kopf._handlers.causes import Cause
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome


class AttemptBegun(Fact, frozen=True, eq=False):
    """A handler is going to be called. Sub-handlers are called inside of the attempt of their parent."""

    is_frequent = True
    handler: Handler
    cause: Cause
    attempt: Attempt
    at: float


class AttemptEnded(Fact, frozen=True, eq=False):
    """The attempt is over."""

    is_frequent = True
    begun: AttemptBegun
    outcome: Outcome | None
    """How it has ended; ``None`` if it was cancelled."""
    at: float
