"""
What the executor tells its observer: of the attempts of handlers, of all kinds.

The reasons and outcomes of attempts have the same names in metrics, traces, recordings, journals of simulations.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kopf._handlers.causes import ActivityCause, Cause, ChangingCause, WatchingCause, WebhookCause
from kopf._handlers.handlers import Handler, IndexingHandler, TimerHandler
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


def name_reason(handler: Handler, cause: Cause) -> str:
    """Tell why the handler is called."""
    if isinstance(cause, ChangingCause):
        return cause.reason.value
    if isinstance(cause, WatchingCause):
        return "event"
    if isinstance(cause, ActivityCause):
        return cause.activity.value
    if isinstance(cause, WebhookCause):
        return "webhook"
    if isinstance(handler, IndexingHandler):
        return "index"
    return "timer" if isinstance(handler, TimerHandler) else "daemon"


def name_outcome(outcome: Outcome | None) -> str:
    """Tell how the attempt has ended."""
    if outcome is None:
        return "cancelled"
    if not outcome.final:
        return "retried"
    return "succeeded" if outcome.exception is None else "failed"
