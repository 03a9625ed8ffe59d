"""Calls of functions of users: coroutines in the event loop, all others in threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, cast

from kopf._client.fencing import Fence, FencedError
from kopf._handlers.handlers import DaemonHandler, Handler, IndexingHandler
from kopf._handlers.thread_pools import ThreadPools
from kopf._values.user_functions import get_text

_SIGNALS = (StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError)
"""The signals between event loops and coroutines. Errors of functions must not look like these."""


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
        result = await threads.call_briefly(functools.partial(_call, fn, kwargs))
    else:
        call = functools.partial(_call, fn, kwargs)
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


def _call(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
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
