"""
The executor: one attempt of one handler of any kind, with all its possible outcomes.

It does everything that all attempts have in common: limits, kwargs, context variables, timeouts, logs. The caller
decides about the effects of the outcome on the object.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from typing import Any

from kopf._client.fencing import Fence
from kopf._handlers.attempt_observer import AttemptObserver
from kopf._handlers.causes import Cause, Kwargs, ResourceCause
from kopf._handlers.current_handler import SubhandlingContext, current_cause, current_subhandling
from kopf._handlers.handler_errors import HandlerTimeoutError, UnfitObjectError, with_text
from kopf._handlers.handlers import ChangingHandler, Handler, IndexingHandler, ResourceHandler, SpawningHandler
from kopf._handlers.invocation import invoke, make_error
from kopf._handlers.outcomes import Attempt, Outcome, make_content
from kopf._handlers.retry_policy import check_limits, judge
from kopf._handlers.running_attempts import RunningAttempts
from kopf._handlers.thread_pools import ThreadPools, get_abandoned_call
from kopf._handlers.thread_usage import TracedCall
from kopf._logging.loggers import Logger
from kopf._logging.once import Once
from kopf._settings.settings import ExecutionSettings
from kopf._values.foreign_values import MAX_WARNED, WARNING, find_foreign_values, name_foreign_values
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.records import FrozenRecord

UserCode = AbstractContextManager[None]
"""A context manager around coroutines of users: others can work meanwhile. It does not count threads."""


class Surroundings(FrozenRecord, frozen=True, kw_only=True):
    """The context of one attempt, besides the context of all attempts."""

    user_code: UserCode | None = None
    subhandling: SubhandlingContext | None = None
    """For handlers of changes: the context of their sub-handlers."""
    is_quiet: bool = False
    """Whether to log only failures."""


NOTHING = Surroundings()


class HandlerExecutor:
    """Makes all attempts of all handlers of one operator."""

    exits: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit, GeneratorExit)
    """The exceptions that propagate from the functions; all others are errors."""

    def __init__(self, settings: ExecutionSettings, observer: AttemptObserver | None = None) -> None:
        self._settings = settings
        self._observer = AttemptObserver() if observer is None else observer
        self.threads = ThreadPools(settings)
        """The threads of synchronous functions."""
        self.running = RunningAttempts()
        """The attempts that run now."""
        self._fence: Fence | None = None
        self._abandoned: dict[TracedCall, str] = {}
        self._warnings = Once(limit=MAX_WARNED)

    def put_behind(self, fence: Fence) -> None:
        """Call nothing when the fence is shut: the objects can belong to another replica by then."""
        self._fence = self.threads.fence = fence

    def check_fence(self, handler: Handler) -> None:
        """Raise :class:`FencedError` if the handler must not be called now."""
        if self._fence is not None and not isinstance(handler, IndexingHandler):  # all replicas index all objects
            self._fence.check()

    def list_abandoned(self) -> list[str]:
        """List the keys of objects whose cancelled functions still run in threads; only with a fence."""
        self._abandoned = {call: key for call, key in self._abandoned.items() if not call.is_over}
        return [*self._abandoned.values()]

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        """
        Make one attempt of the handler: call its function with the kwargs of the cause.

        Only cancellations and exits of the interpreter propagate as exceptions.
        """
        logger, observer, outcome = cause.logger, self._observer, None
        if self._fence is not None:
            self.check_fence(handler)
        number = self.running.enter(handler, logger)
        started = observer.clock()
        observer.attempt_begun(number, handler, cause, attempt)
        try:
            if handler.timeout is not None or handler.retries is not None:
                check_limits(handler, attempt)
            if not around.is_quiet and logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s is invoked.", handler)
            kwargs = _make_kwargs(handler, cause, attempt)
            if handler.timeout is None or not handler.is_async:  # threads cannot be interrupted
                result = await self._call(handler, cause, kwargs, around)
            else:
                limit = handler.timeout - attempt.runtime.total_seconds()
                result = await self._call_in_time(handler, cause, kwargs, around, limit)
        except asyncio.CancelledError as e:
            call = get_abandoned_call(e)
            if self._fence is not None and call is not None and isinstance(cause, ResourceCause):
                self._abandoned[call] = cause.body.object.head.key
            _report_cancellation(handler, call, logger)
            raise
        except Exception as e:
            outcome = self._fail(handler, cause, attempt, with_text(e))
        except self.exits:
            raise
        except BaseException as e:  # e.g. a panic of a library in Rust
            outcome = self._fail(handler, cause, attempt, make_error(e))
        else:
            outcome = self._conclude(handler, cause, result, around)
        finally:
            self.running.leave(number)
            observer.attempt_ended(number, handler, cause, outcome, started)
        try:
            return outcome
        finally:
            # The traceback of an error holds this frame and the frames of its callers. If a frame held the error, too,
            # all of them would stay, with the kwargs of the handler, until a garbage collection, which is rare.
            del outcome

    def _fail(self, handler: Handler, cause: Cause, attempt: Attempt, error: Exception) -> Outcome:
        uid = cause.body.object.head.key if isinstance(cause, ResourceCause) else ""
        judgement = judge(handler, attempt, error, default_backoff=self._settings.default_backoff, uid=uid)
        if isinstance(error, UnfitObjectError) and judgement.outcome.is_unfit and isinstance(cause, ResourceCause):
            self._report_unfit(handler, cause, error.mismatch)
            return judgement.outcome
        exc_info = error if judgement.has_traceback else None
        cause.logger.log(judgement.level, judgement.message, handler, *judgement.details, exc_info=exc_info)
        return judgement.outcome

    def _report_unfit(self, handler: Handler, cause: ResourceCause, mismatch: ModelMismatchError) -> None:
        """Report once for each state of the object: in the logs, in its events, and in its conditions."""
        head, text = cause.body.object.head, str(mismatch)
        if isinstance(handler, ChangingHandler | SpawningHandler) and handler.model and handler.model.has_conditions:
            from kopf._handlers.conditions import report_mismatch  # most operators have none

            report_mismatch(handler, cause, mismatch)
        if self._warnings.is_new((head.key, text), head.generation):
            cause.logger.warning("%s. Kopf handles it when it changes.", text, extra={"k8s_reason": "ModelMismatch"})

    def _conclude(self, handler: Handler, cause: Cause, result: Any, around: Surroundings) -> Outcome:
        """Make the outcome of a returned result: a success, even if Kopf cannot store the result."""
        logger, content = cause.logger, None
        if result is not None and handler.stores_result:
            try:
                content = make_content(result)
            except (TypeError, ValueError) as e:
                text = "%s succeeded, but its result is not stored in the status, as it has no JSON form: %s: %s"
                logger.error(text, handler, type(e).__name__, e)
                return Outcome(True, None, result)
            if content != result:  # usually, the decoded result is the same
                self._warn_of_foreign_values(handler, cause, result)
        if not around.is_quiet and logger.isEnabledFor(handler.success_level):
            logger.log(handler.success_level, "%s succeeded.", handler)
        return Outcome(True, None, result, content=content)

    def _warn_of_foreign_values(self, handler: Handler, cause: Cause, result: Any) -> None:
        key = cause.body.object.head.key if isinstance(cause, ResourceCause) else None
        found = find_foreign_values(result, ("status", handler.id))
        if found and self._warnings.is_new((key, handler.id)):
            cause.logger.warning(WARNING, handler, name_foreign_values(found))

    async def _call(self, handler: Handler, cause: Cause, kwargs: Kwargs, around: Surroundings) -> Any:
        if not isinstance(cause, ResourceCause):
            return await invoke(handler, kwargs, threads=self.threads)
        subhandling = around.subhandling
        # For functions that the handler calls. There are as few layers as possible, because it runs for every object.
        cause_token = current_cause.set(cause)
        token = None if subhandling is None else current_subhandling.set(subhandling)
        try:
            if around.user_code is None or not handler.is_async:
                result = await invoke(handler, kwargs, threads=self.threads)
            else:
                with around.user_code:
                    result = await invoke(handler, kwargs, threads=self.threads)
            if subhandling is not None and subhandling.declared:
                await subhandling.execute(subhandling, subhandling.declared)
            return result
        finally:
            current_cause.reset(cause_token)
            if token is not None:
                current_subhandling.reset(token)

    async def _call_in_time(
        self, handler: Handler, cause: Cause, kwargs: Kwargs, around: Surroundings, limit: float
    ) -> Any:
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await self._call(handler, cause, kwargs, around)
        except TimeoutError as e:
            if not scope.expired():
                raise  # the handler's own one
            raise HandlerTimeoutError(f"{handler} has timed out after {handler.timeout} seconds.") from e


def _report_cancellation(handler: Handler, call: TracedCall | None, logger: Logger) -> None:
    if call is None:
        logger.warning("%s is cancelled. Will escalate.", handler)
        return
    if not isinstance(handler, SpawningHandler):  # the code that stops daemons & timers logs it
        logger.warning(
            "%s does not end, so it is abandoned: it continues in its thread until the process exits, and the next "
            "operator calls it again.",
            handler,
        )
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s is executed at: %s", handler, call.describe_stack())


def _make_kwargs(handler: Handler, cause: Cause, attempt: Attempt) -> Kwargs:
    kwargs = cause.kwargs_read_by(handler)
    if handler.decoders is not None and isinstance(cause, ResourceCause) and isinstance(handler, ResourceHandler):
        try:
            cause.check_fit(handler)
            cause.decode(handler, handler.fn, kwargs)
        except ModelMismatchError as e:
            raise UnfitObjectError(e) from None
    kwargs.setdefault("retry", attempt.retry)  # the indices have precedence over all kwargs
    kwargs.setdefault("started", attempt.started)
    kwargs.setdefault("runtime", attempt.runtime)
    return kwargs
