"""
Threads of ``anyio``: libraries on top of it read files there, and the loop with virtual time must wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def running_as_jobs(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """
    Let ``anyio.to_thread.run_sync()`` run functions in the threads of the loop, if the library is imported.

    Its own threads are known to nobody: the loop would take their work for waiting, and jump over hours.
    """
    module: Any = sys.modules.get("anyio.to_thread")
    if module is None:
        yield
        return
    real_run_sync = module.run_sync

    async def run_sync(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if asyncio.get_running_loop() is not loop:
            return await real_run_sync(func, *args, **options)
        context = contextvars.copy_context()
        return await loop.run_in_executor(None, functools.partial(context.run, func, *args))

    module.run_sync = run_sync
    try:
        yield
    finally:
        module.run_sync = real_run_sync
