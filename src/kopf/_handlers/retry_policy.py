"""
The retry policy: the meaning of errors of handlers, and the time of the next attempt, if any.

It is the same for handlers of all kinds. It calls nothing, logs nothing, and reads no clock.

* A :class:`TemporaryError` is retried after its own delay; a :class:`PermanentError` is never retried.
* For other errors, the handler's ``errors=`` decides, or the default of this kind of handlers. The delay is the
  handler's ``backoff=``, or ``settings.execution.default_backoff``; both can grow with the failures.
* ``retries=`` is the number of all attempts, ``timeout=`` is the time since the first one. If the next attempt would
  exceed either of these, the handler fails at once.
* Waiting for sub-handlers is neither a success nor a failure, and does not count.
* If the object does not fit its model, the handler is called when the object changes.
"""

from __future__ import annotations

import datetime
import logging
from typing import NamedTuple

from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.handler_errors import (
    AdmissionError,
    ErrorsMode,
    HandlerChildrenRetry,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
    UnfitObjectError,
    deny_malformed,
    name_error,
)
from kopf._handlers.handlers import ActivityHandler, Handler, IndexingHandler, WatchingHandler, WebhookHandler
from kopf._logging.tracebacks import has_users_frame
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.bodies import StanzaError
from kopf._values.operator_error import OperatorError
from kopf._values.reasons import Activity


class Judgement(NamedTuple):
    """The meaning of an error of a handler, and its log line."""

    outcome: Outcome
    level: int
    """The level of the log message, as in :mod:`logging`."""
    message: str
    """The log message, with the placeholder for the handler and the ``details``."""
    details: tuple[str, ...] = ()
    has_traceback: bool = False


_DENIAL = "%s denied the change: %s"
"""The handler works correctly, but the change is wrong."""


class Retries:
    """The attempts of one unfinished handler, kept in memory."""

    __slots__ = ("_started", "count")

    def __init__(self) -> None:
        self.count = 0
        self._started: datetime.datetime | None = None

    def begin(self, now: datetime.datetime) -> Attempt:
        """Make the attempt that starts now."""
        if self._started is None:
            self._started = now
        return Attempt(self.count, self._started, now - self._started)

    def note(self, outcome: Outcome) -> None:
        """Note the outcome of the attempt: after a final one, the next attempt is the first one again."""
        if outcome.final:
            self.count, self._started = 0, None
        else:
            self.count += 1


def get_errors_mode(handler: Handler) -> ErrorsMode:
    """
    Get the mode for arbitrary errors of the handler: the declared one, or the default.

    Raw events and indices are not retried, as a retry would be too late; neither are admission handlers and probes, as
    their clients wait for the answer.
    """
    match handler:
        case Handler(errors=ErrorsMode() as mode):
            return mode
        case WatchingHandler() | IndexingHandler():
            return ErrorsMode.IGNORED
        case WebhookHandler() | ActivityHandler(activity=Activity.PROBE):
            return ErrorsMode.PERMANENT
    return ErrorsMode.TEMPORARY


def check_limits(handler: Handler, attempt: Attempt) -> None:
    """
    Check that the limits of the handler permit one more attempt.

    It could have exceeded them while the operator was down, or a new version of the operator could have reduced them.

    Raises :class:`HandlerTimeoutError` or :class:`HandlerRetriesError`.
    """
    if handler.timeout is not None and attempt.runtime.total_seconds() >= handler.timeout:
        raise HandlerTimeoutError(f"{handler} has timed out after {attempt.runtime}.")
    if handler.retries is not None and attempt.failures >= handler.retries:
        raise HandlerRetriesError(f"{handler} has exceeded {attempt.failures} retries.")


def judge(
    handler: Handler,
    attempt: Attempt,
    error: Exception,
    *,
    default_backoff: float | ExponentialBackoff,
    uid: str = "",
) -> Judgement:
    """
    Decide about the next step after the error.

    ``default_backoff`` (in seconds) is for handlers without their own one. ``uid`` is the UID of the object: growing
    delays differ between objects.
    """
    match error:
        case HandlerChildrenRetry():
            outcome = Outcome(final=False, delay=error.delay, exception=error)
            return Judgement(outcome, logging.DEBUG, "%s has unfinished sub-handlers. Will retry soon.")
        case AdmissionError() if isinstance(handler, WebhookHandler):
            return _give_up(error, logging.INFO, _DENIAL)
        case UnfitObjectError() if isinstance(handler, WebhookHandler):
            return _give_up(AdmissionError(str(error), code=422), logging.INFO, _DENIAL)
        case UnfitObjectError():
            outcome = Outcome(final=False, exception=error, is_unfit=True)
            return Judgement(outcome, logging.WARNING, "%s is not called: %s", (str(error),))
        case TemporaryError():
            return _judge_temporary_error(handler, attempt, error)
        case PermanentError():
            return _give_up(error, logging.ERROR, "%s failed permanently: %s")
        case StanzaError() if isinstance(handler, WebhookHandler):
            return _give_up(deny_malformed(error), logging.INFO, _DENIAL)
    backoff = default_backoff if handler.backoff is None else handler.backoff
    if isinstance(backoff, ExponentialBackoff):
        backoff = backoff.get_delay(attempt.failures, f"{handler.id} {uid}")
    return _judge_arbitrary_error(handler, attempt, error, backoff)


def _give_up(error: PermanentError, level: int, message: str) -> Judgement:
    return Judgement(Outcome(final=True, exception=error), level, message, (_describe(error),))


def _judge_temporary_error(handler: Handler, attempt: Attempt, error: TemporaryError) -> Judgement:
    limit = _find_exceeded_limit(handler, attempt, error.delay or 0)
    if limit is not None:
        outcome = Outcome(final=True, exception=error)
        message = "%s failed temporarily but will %s: %s"
        return Judgement(outcome, logging.ERROR, message, (limit, _describe(error)))
    outcome = Outcome(final=False, delay=error.delay, exception=error)
    return Judgement(outcome, logging.ERROR, "%s failed temporarily: %s", (_describe(error),))


def _judge_arbitrary_error(handler: Handler, attempt: Attempt, error: Exception, backoff: float) -> Judgement:
    mode = get_errors_mode(handler)
    limit = _find_exceeded_limit(handler, attempt, backoff)
    if mode is ErrorsMode.IGNORED:
        plan, outcome = "be ignored", Outcome(final=True, ignored=error)
    elif mode is ErrorsMode.PERMANENT:
        plan, outcome = "stop now", Outcome(final=True, exception=error)
    elif limit is not None:
        plan, outcome = f"stop now (it would {limit} on the next attempt)", Outcome(final=True, exception=error)
    else:
        plan, outcome = f"try again in {backoff} seconds", Outcome(final=False, delay=backoff, exception=error)
    message = "%s failed with an exception and will %s: %s"
    # Our own errors are explained by their texts, e.g. refusals of what a reconciler has yielded.
    has_traceback = not isinstance(error, OperatorError) or has_users_frame(error)
    return Judgement(outcome, logging.ERROR, message, (plan, name_error(error)), has_traceback=has_traceback)


def _find_exceeded_limit(handler: Handler, attempt: Attempt, delay: float) -> str | None:
    """Find the limit that the next attempt would exceed, if any: then it makes no sense to wait for it."""
    if handler.retries is not None and attempt.failures + 1 >= handler.retries:
        return f"exceed {handler.retries} retries"
    if handler.timeout is not None and attempt.runtime.total_seconds() + delay >= handler.timeout:
        return f"time out after {handler.timeout} seconds"
    return None


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
