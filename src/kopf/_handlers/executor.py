"""
The executor: one attempt of one handler of any kind, with all its possible outcomes.

It does everything that all attempts have in common: limits, kwargs, context variables, timeouts, logs. The caller
decides about the effects of the outcome on the object. Coroutines run in the loop, all other functions in threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from kopf._client.fencing import Fence, FencedError
from kopf._handlers.attempts import Attempt, AttemptObserver, Outcome, RunningAttempts, make_content
from kopf._handlers.causes import Cause, Kwargs, ResourceCause
from kopf._handlers.current_handler import SubhandlingContext, current_cause, current_subhandling
from kopf._handlers.handler_errors import HandlerTimeoutError, UnfitObjectError, with_text
from kopf._handlers.handlers import (
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    ResourceHandler,
    SpawningHandler,
)
from kopf._handlers.retry_policy import check_limits, judge
from kopf._handlers.thread_pools import ThreadPools, get_abandoned_call
from kopf._handlers.thread_usage import TracedCall
from kopf._logging.loggers import Logger
from kopf._logging.once import Once
from kopf._settings.settings import ExecutionSettings
from kopf._values.foreign_values import MAX_WARNED, WARNING, find_foreign_values, name_foreign_values
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.records import FrozenRecord
from kopf._values.user_functions import get_text

UserCode = AbstractContextManager[None]
"""A context manager around coroutines of users: others can work meanwhile. It does not count threads."""

_SIGNALS = (StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError)
"""The signals between event loops and coroutines. Errors of functions must not look like these."""


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
    kwargs = cause.kwargs_for(handler, handler.reads)
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


async def invoke(handler: Handler, kwargs: Mapping[str, Any], *, threads: ThreadPools) -> Any:
    """
    Call the function of the handler, and return its result. Its exceptions propagate.

    If a synchronous function returns an awaitable (e.g. a lambda), the event loop awaits it.

    Raises :class:`RuntimeError` instead of the few exceptions that are signals of event loops.
    """
    fn = handler.call or handler.fn
    if handler.is_async:
        result = fn(**kwargs)
    elif isinstance(handler, IndexingHandler):
        result = await threads.call_briefly(functools.partial(invoke_in_thread, fn, kwargs))
    else:
        call = functools.partial(invoke_in_thread, fn, kwargs)
        result = await threads.call(handler.id, call, is_long=isinstance(handler, DaemonHandler))
    if not handler.is_async and not inspect.isawaitable(result):
        return result
    if threads.fence is not None and not isinstance(handler, IndexingHandler):  # all replicas index all objects
        result = _StepsBeforeFence(result, threads.fence)
    try:
        return await result
    except FencedError:
        raise
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not this task is cancelled, but something that it awaits, e.g. another task.
        raise RuntimeError(_describe("coroutine", e)) from e


class _StepsBeforeFence:
    """
    Awaits something, and stops its steps when the fence is shut, except for its clean-up.

    After a freeze, a process continues with the next steps of its coroutines, before any code can look at the time and
    cancel them.
    """

    __slots__ = ("_awaitable", "_fence")

    def __init__(self, awaitable: Awaitable[Any], fence: Fence) -> None:
        self._awaitable = awaitable
        self._fence = fence

    def __await__(self) -> Generator[Any, None, Any]:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        steps, is_shut = self._awaitable.__await__(), False
        error: BaseException | None = None
        try:
            while True:
                if not is_shut:
                    try:
                        self._fence.check()
                    except FencedError as e:
                        error, is_shut = e, True
                        # Without a request, a timeout of the coroutine that is due now would take the error for its
                        # own cancellation, and the coroutine would go on. The error of the request itself ends here.
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            yield
                try:
                    # Not all iterators can take errors in: e.g. some await nothing but a future.
                    awaited = steps.send(None) if error is None else getattr(steps, "throw", _raise)(error)
                except StopIteration as e:
                    return e.value
                finally:
                    error = None
                try:
                    yield awaited
                except BaseException as e:
                    error = e
        finally:
            if is_shut:
                task.uncancel()


def _raise(error: BaseException) -> Any:
    raise error


def invoke_in_thread(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of a user in the current thread."""
    try:
        return fn(**kwargs)
    except _SIGNALS as e:
        raise RuntimeError(_describe("function", e)) from e


def make_error(e: BaseException) -> RuntimeError:
    """Make an error of an exception that is none, with the exception as its cause."""
    error = RuntimeError(_describe("function", e))
    error.__cause__ = e
    return error


def _describe(what: str, e: BaseException) -> str:
    """Describe it with the words of Python for coroutines & generators."""
    text = get_text(e)
    return f"{what} raised {type(e).__name__}{f': {text}' if text else ''}"
