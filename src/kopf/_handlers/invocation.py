"""How a function of a user is called: coroutines in the event loop, all else in the threads of the executor."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from kopf._handlers.handlers import DaemonHandler, Handler
from kopf._settings.settings import ExecutionSettings
from kopf._settings.thread_usage import ThreadCall


async def invoke(handler: Handler, kwargs: Mapping[str, Any], *, execution: ExecutionSettings) -> Any:
    """
    Call the function of the handler and get its result; its exceptions go through.

    A synchronous function that returns an awaitable (e.g. a lambda) gets it awaited in the event loop.
    """
    if handler.is_async:
        return await handler.fn(**kwargs)
    result = await _invoke_in_thread(handler, kwargs, execution)
    return await result if inspect.isawaitable(result) else result


async def _invoke_in_thread(handler: Handler, kwargs: Mapping[str, Any], execution: ExecutionSettings) -> Any:
    is_long = isinstance(handler, DaemonHandler)
    executor = execution.get_executor(is_long=is_long)
    # The context is copied, so that the thread knows what is being handled; see the context variables.
    fn = functools.partial(contextvars.copy_context().run, handler.fn, **kwargs)
    call = ThreadCall(handler.id, fn, executor, execution.usage, is_long=is_long)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
    finally:
        call.release()
