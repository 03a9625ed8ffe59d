"""
The retry policy: what an error of a handler means, when it is tried again, and when it is given up.

It applies to the handlers of all kinds. Nothing is called or logged here, and nothing looks at the clock.

* A :class:`TemporaryError` is retried after its own delay; a :class:`PermanentError` never is.
* Any other error is treated as the handler's ``errors=`` says, or as is usual for this kind of handlers. It is retried
  after the handler's ``backoff=``, or after ``settings.execution.default_backoff``; any of these can grow with the
  failures.
* The ``retries=`` are the number of all attempts, the ``timeout=`` is the time since the first one. An attempt that
  would be beyond any of these is not waited for: the handler fails at once.
* Waiting for sub-handlers is neither a success nor a failure, and is not counted.
* Those who cannot be called, as the object does not fit its model, are called when it is changed.
"""

from __future__ import annotations

import datetime
import logging
from typing import NamedTuple

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
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.bodies import StanzaError
from kopf._values.reasons import Activity


class Judgement(NamedTuple):
    """What an error of a handler means, and how it is to be logged."""

    outcome: Outcome
    level: int
    """The level of the log message, as in :mod:`logging`."""
    message: str
    """The log message, with the placeholder for the handler and the ``details``."""
    details: tuple[str, ...] = ()
    has_traceback: bool = False


_DENIAL = "%s denied the change: %s"
"""Then, the handler works as it should: it is the change that is wrong."""


class Retries:
    """The attempts of one handler that are remembered in memory, for as long as it is not done."""

    __slots__ = ("_started", "count")

    def __init__(self) -> None:
        self.count = 0
        self._started: datetime.datetime | None = None

    def begin(self, now: datetime.datetime) -> Attempt:
        """Describe the attempt that begins now."""
        if self._started is None:
            self._started = now
        return Attempt(self.count, self._started, now - self._started)

    def note(self, outcome: Outcome) -> None:
        """Note how the attempt has ended: when the handler is done, the next attempt is the first one again."""
        if outcome.final:
            self.count, self._started = 0, None
        else:
            self.count += 1


def get_errors_mode(handler: Handler) -> ErrorsMode:
    """
    Tell how arbitrary errors of the handler are treated, if it is not specified in its declaration.

    Nobody waits for another attempt where the moment is gone (raw events, indices); and where somebody waits for the
    answer (admission, probes), there is no time for it.
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
    Check that the handler may be called once more.

    The limits could be exceeded while the operator was down, or be reduced in its new version.

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
    Decide what comes next after the error.

    ``default_backoff`` (seconds) is for handlers with no own one; ``uid`` is of the object, so that growing delays
    differ between objects.
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
    return Judgement(outcome, logging.ERROR, message, (plan, name_error(error)), has_traceback=True)


def _find_exceeded_limit(handler: Handler, attempt: Attempt, delay: float) -> str | None:
    """Tell if there is no sense in sleeping, as the next attempt would be refused anyway."""
    if handler.retries is not None and attempt.failures + 1 >= handler.retries:
        return f"exceed {handler.retries} retries"
    if handler.timeout is not None and attempt.runtime.total_seconds() + delay >= handler.timeout:
        return f"time out after {handler.timeout} seconds"
    return None


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
