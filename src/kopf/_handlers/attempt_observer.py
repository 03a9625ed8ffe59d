"""What the executor tells its observer: of the attempts of handlers, of all kinds."""

from __future__ import annotations

import time
from collections.abc import Callable

from kopf._handlers.causes import Cause
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome


class AttemptObserver:
    """The part of the observer that the executor calls; see ``kopf._controller.observer``."""

    clock: Callable[[], float] = time.perf_counter
    """The time of what is told, in seconds since any moment."""

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: Attempt) -> None:
        """A handler is going to be called. Sub-handlers are called inside of the attempt of their parent."""

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        """The attempt of that number, which has started at that time, is over; ``None`` if it was cancelled."""
