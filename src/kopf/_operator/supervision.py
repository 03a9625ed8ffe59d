"""Supervision: every task has an owner, who restarts it when it fails, or goes down with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_BACKOFFS = (1, 2, 5, 10, 30)
"""Delays before the restarts, in seconds; when they are over, the operator is considered broken."""

_STABLE_AFTER = 60.0
"""After how many seconds of work a task is considered healthy again."""


async def keep_running(name: str, start: Callable[[], Awaitable[None]], *, fatal: tuple[type[Exception], ...]) -> None:
    """
    Run the routine; restart it if it fails or ends for whatever reason, with growing delays.

    ``fatal`` errors go through at once, all other ones when the task fails again and again.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        started = loop.time()
        try:
            await start()
        except fatal:
            raise
        except Exception as e:
            failures = 1 if loop.time() - started >= _STABLE_AFTER else failures + 1
            if failures > len(_BACKOFFS):
                raise
            delay = _BACKOFFS[failures - 1]
            logger.exception("The %s has failed, and will be restarted in %s seconds: %s", name, delay, e)
            await asyncio.sleep(delay)
        else:
            logger.error("The %s has ended unexpectedly, and will be restarted.", name)
            await asyncio.sleep(_BACKOFFS[0])
