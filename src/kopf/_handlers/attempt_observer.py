"""
The observer of the executor: it learns of all attempts of all handlers.

The reasons and outcomes of attempts have the same names in metrics, traces, recordings, and journals of simulations.
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
    """The clock of the observer, in seconds since any moment."""

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: Attempt) -> None:
        """An attempt begins. Sub-handlers run inside of the attempt of their parent."""

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        """The attempt with this number and start is over. The outcome is ``None`` if it was cancelled."""


def name_reason(handler: Handler, cause: Cause) -> str:
    """Name the reason of the call."""
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
    """Name the outcome of the attempt."""
    if outcome is None:
        return "cancelled"
    if not outcome.final:
        return "retried"
    return "succeeded" if outcome.exception is None else "failed"
