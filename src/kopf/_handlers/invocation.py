"""How a function of a user is called: coroutines in the event loop, all else in the threads of the executor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from kopf._handlers.handlers import Handler


async def invoke(handler: Handler, kwargs: Mapping[str, Any], *, executor: concurrent.futures.Executor) -> Any:
    """
    Call the function of the handler and get its result; its exceptions go through.

    A synchronous function that returns an awaitable (e.g. a lambda) gets it awaited in the event loop.
    """
    if handler.is_async:
        return await handler.fn(**kwargs)
    # The context is copied, so that the thread knows what is being handled; see the context variables.
    call = functools.partial(contextvars.copy_context().run, handler.fn, **kwargs)
    result = await asyncio.get_running_loop().run_in_executor(executor, call)
    return await result if inspect.isawaitable(result) else result
