"""
Outcomes: one attempt of one handler, with all the ways in which it can end.

The errors are logged here, where it is known what happens next; what to do with the outcome is up to the caller.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

from kopf._handlers.errors import (
    ErrorsMode,
    HandlerChildrenRetry,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
)
from kopf._handlers.handlers import Handler
from kopf._logging.logs import Logger
from kopf._values import codec
from kopf._values.patches import Patch, thaw


@dataclasses.dataclass(frozen=True)
class Attempt:
    """How often the handler was tried before, and since when."""

    retry: int
    """The number of the attempt, beginning with 0."""
    started: datetime.datetime
    """When the first attempt began (with a time zone)."""
    runtime: datetime.timedelta
    """How much time has passed since then."""
    reentries: int = 0
    """How many of the previous attempts were made only to go on with the sub-handlers: they are not failures."""

    @property
    def failures(self) -> int:
        """How many of the previous attempts have failed."""
        return self.retry - self.reentries


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How an attempt has ended."""

    final: bool
    """Whether the handler is done, for good or bad."""
    delay: float | None = None
    """If not final, when to try again (seconds from now); ``None`` is for at once."""
    result: Any = None
    exception: BaseException | None = None


async def execute_once(
    handler: Handler,
    attempt: Attempt,
    call: Callable[[], Awaitable[Any]],
    *,
    logger: Logger,
    default_backoff: float,
    default_errors: ErrorsMode = ErrorsMode.TEMPORARY,
    verbose: bool = True,
) -> Outcome:
    """
    Try the handler once, with ``call`` being the actual call of its function.

    If not ``verbose``, only failures are logged.

    Only cancellation and the exits of the interpreter go through as exceptions.
    """
    try:
        _check_limits(handler, attempt)
        if verbose:
            logger.debug("%s is invoked.", handler)
        result = await _call_in_time(handler, attempt, call)
    except asyncio.CancelledError:
        logger.warning("%s is cancelled. Will escalate.", handler)
        raise
    except HandlerChildrenRetry as e:
        logger.debug("%s has unfinished sub-handlers. Will retry soon.", handler)
        return Outcome(final=False, delay=e.delay, exception=e)
    except TemporaryError as e:
        if limit := _get_exceeded_limit(handler, attempt, e.delay or 0):
            logger.error("%s failed temporarily but will %s: %s", handler, limit, _describe(e))
            return Outcome(final=True, exception=e)
        logger.error("%s failed temporarily: %s", handler, _describe(e))
        return Outcome(final=False, delay=e.delay, exception=e)
    except PermanentError as e:
        logger.error("%s failed permanently: %s", handler, _describe(e))
        return Outcome(final=True, exception=e)
    except Exception as e:
        mode = handler.errors or default_errors
        backoff = default_backoff if handler.backoff is None else handler.backoff
        return _treat_arbitrary_error(handler, attempt, e, logger=logger, mode=mode, backoff=backoff)
    if verbose:
        logger.info("%s succeeded.", handler)
    return Outcome(final=True, result=result)


def deliver_result(handler: Handler, outcome: Outcome, patch: Patch, *, logger: Logger) -> None:
    """Put the result of the handler to the status, unless it has no JSON form: then it is reported and dropped."""
    if outcome.result is None:
        return
    try:
        result = codec.decode(codec.encode(thaw(outcome.result)))
    except (TypeError, ValueError) as e:
        logger.error("%s has returned a value that cannot be stored in the status as JSON: %s", handler, e)
    else:
        patch.status[handler.id] = result


def _check_limits(handler: Handler, attempt: Attempt) -> None:
    """The limits could be exceeded while the operator was down, or be reduced in its new version."""
    if handler.timeout is not None and attempt.runtime.total_seconds() >= handler.timeout:
        raise HandlerTimeoutError(f"{handler} has timed out after {attempt.runtime}.")
    if handler.retries is not None and attempt.failures >= handler.retries:
        raise HandlerRetriesError(f"{handler} has exceeded {attempt.failures} retries.")


async def _call_in_time(handler: Handler, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
    if handler.timeout is None or not handler.is_async:  # threads cannot be interrupted
        return await call()
    scope = asyncio.timeout(handler.timeout - attempt.runtime.total_seconds())
    try:
        async with scope:
            return await call()
    except TimeoutError as e:
        if not scope.expired():
            raise  # the handler's own one
        raise HandlerTimeoutError(f"{handler} has timed out after {handler.timeout} seconds.") from e


def _treat_arbitrary_error(
    handler: Handler, attempt: Attempt, e: Exception, *, logger: Logger, mode: ErrorsMode, backoff: float
) -> Outcome:
    limit = _get_exceeded_limit(handler, attempt, backoff)
    if mode is ErrorsMode.IGNORED:
        plan, outcome = "be ignored", Outcome(final=True)
    elif mode is ErrorsMode.PERMANENT:
        plan, outcome = "stop now", Outcome(final=True, exception=e)
    elif limit is not None:
        plan, outcome = f"stop now (it would {limit} on the next attempt)", Outcome(final=True, exception=e)
    else:
        plan, outcome = f"try again in {backoff} seconds", Outcome(final=False, delay=backoff, exception=e)
    logger.error("%s failed with an exception and will %s: %s", handler, plan, _describe(e), exc_info=e)
    return outcome


def _get_exceeded_limit(handler: Handler, attempt: Attempt, delay: float) -> str | None:
    """Tell if there is no sense in sleeping, as the next attempt would be refused anyway."""
    if handler.retries is not None and attempt.failures + 1 >= handler.retries:
        return f"exceed {handler.retries} retries"
    if handler.timeout is not None and attempt.runtime.total_seconds() + delay >= handler.timeout:
        return f"time out after {handler.timeout} seconds"
    return None


def _describe(e: BaseException) -> str:
    return str(e) or type(e).__name__
