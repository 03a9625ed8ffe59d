"""How a function of a user is called: coroutines in the event loop, all else in threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kopf._client.fencing import FencedError
from kopf._handlers.handlers import DaemonHandler, Handler, IndexingHandler
from kopf._handlers.thread_pools import ThreadPools

_SIGNALS = (StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError)
"""How event loops and coroutines talk to each other: as errors of functions, they would be misunderstood on the way."""


async def invoke(handler: Handler, kwargs: Mapping[str, Any], *, threads: ThreadPools) -> Any:
    """
    Call the function of the handler and get its result; its exceptions go through.

    A synchronous function that returns an awaitable (e.g. a lambda) gets it awaited in the event loop.

    Those few exceptions that do not get through as errors of a function, are raised as :class:`RuntimeError`.
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
    try:
        return await result
    except FencedError:
        raise
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not the handler is cancelled, but something that it waits for, e.g. a task of somebody else.
        raise RuntimeError(_describe("coroutine", e)) from e


def _call(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of the users in the current thread."""
    try:
        return fn(**kwargs)
    except _SIGNALS as e:
        raise RuntimeError(_describe("function", e)) from e


def _describe(what: str, e: BaseException) -> str:
    """Say it as Python does for coroutines & generators."""
    return f"{what} raised {type(e).__name__}{f': {e}' if str(e) else ''}"
