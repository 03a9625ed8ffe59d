"""How a function of a user is called: coroutines in the event loop, all else in the threads of the executor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kopf._handlers.handlers import DaemonHandler, Handler
from kopf._settings.settings import ExecutionSettings
from kopf._settings.thread_usage import ThreadCall

_SIGNALS = (StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError)
"""How event loops and coroutines talk to each other: as errors of functions, they would be misunderstood on the way."""


async def invoke(handler: Handler, kwargs: Mapping[str, Any], *, execution: ExecutionSettings) -> Any:
    """
    Call the function of the handler and get its result; its exceptions go through.

    A synchronous function that returns an awaitable (e.g. a lambda) gets it awaited in the event loop.

    Those few exceptions that do not get through as errors of a function, are raised as :class:`RuntimeError`.
    """
    if handler.is_async:
        return await wait(handler.fn(**kwargs))
    result = await _invoke_in_thread(handler, kwargs, execution)
    return await wait(result) if inspect.isawaitable(result) else result


async def wait(awaitable: Awaitable[Any]) -> Any:
    """Wait for a coroutine of the users."""
    try:
        return await awaitable
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not the handler is cancelled, but something that it waits for, e.g. a task of somebody else.
        raise RuntimeError(_describe("coroutine", e)) from e


async def _invoke_in_thread(handler: Handler, kwargs: Mapping[str, Any], execution: ExecutionSettings) -> Any:
    is_long = isinstance(handler, DaemonHandler)
    executor = execution.get_executor(is_long=is_long)
    # The context is copied, so that the thread knows what is being handled; see the context variables.
    fn = functools.partial(contextvars.copy_context().run, call_in_place, handler.fn, kwargs)
    call = ThreadCall(handler.id, fn, executor, execution.usage, is_long=is_long)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
    finally:
        call.release()


def call_in_place(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of the users in the current thread."""
    try:
        return fn(**kwargs)
    except _SIGNALS as e:
        raise RuntimeError(_describe("function", e)) from e


def _describe(what: str, e: BaseException) -> str:
    """Say it as Python does for coroutines & generators."""
    return f"{what} raised {type(e).__name__}{f': {e}' if str(e) else ''}"
