"""Names of the reasons and outcomes of attempts: the same in metrics, traces, recordings, journals of simulations."""

from __future__ import annotations

from kopf._handlers.causes import ActivityCause, Cause, ChangingCause, WatchingCause, WebhookCause
from kopf._handlers.handlers import Handler, IndexingHandler, TimerHandler
from kopf._handlers.outcomes import Outcome


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
