"""Supervision: every task has an owner, who restarts it when it fails, or goes down with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kopf._health.liveness import Liveness

logger = logging.getLogger(__name__)

_BACKOFFS = (1, 2, 5, 10, 30)
"""Delays before the restarts, in seconds; when they are over, the operator is considered broken."""

_STABLE_AFTER = 60.0
"""After how many seconds of work a task is considered healthy again."""


async def keep_running(
    name: str, start: Callable[[], Awaitable[None]], *, fatal: tuple[type[Exception], ...], liveness: Liveness
) -> None:
    """
    Run the routine; restart it if it fails, with growing delays; to end is a failure, too.

    ``fatal`` errors go through at once, all other ones when the task fails again and again. Before that, it is noted
    in the liveness, so that the operator is reported as unhealthy.
    """
    try:
        await _keep_running(name, start, fatal=fatal, liveness=liveness)
    finally:
        liveness.note_recovery(name)


async def _keep_running(
    name: str, start: Callable[[], Awaitable[None]], *, fatal: tuple[type[Exception], ...], liveness: Liveness
) -> None:
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        started = loop.time()
        try:
            await _run_once(name, start, liveness)
            raise RuntimeError("it has ended, while it must run as long as the operator does")
        except fatal:
            raise
        except Exception as e:
            failures = 1 if loop.time() - started >= _STABLE_AFTER else failures + 1
            if failures > len(_BACKOFFS):
                raise
            delay = _BACKOFFS[failures - 1]
            liveness.note_failure(name, failures, str(e) or type(e).__name__)
            logger.exception("The %s has failed, and will be restarted in %s seconds: %s", name, delay, e)
            await asyncio.sleep(delay)


async def _run_once(name: str, start: Callable[[], Awaitable[None]], liveness: Liveness) -> None:
    stability = asyncio.get_running_loop().call_later(_STABLE_AFTER, liveness.note_recovery, name)
    try:
        await start()
    finally:
        stability.cancel()
