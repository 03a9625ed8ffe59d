"""Supervision: every task has an owner, which restarts it when it fails, or fails with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from kopf._health.liveness import Liveness

logger = logging.getLogger(__name__)

_BACKOFFS = (1, 2, 5, 10, 30)
"""The delays before restarts, in seconds; after the last one, the failure of a vital task ends the operator."""

_STABLE_AFTER = 60.0
"""How long a task must work until it counts as healthy again, in seconds."""


async def keep_running(
    name: str,
    start: Callable[[], Awaitable[None]],
    *,
    fatal: tuple[type[Exception], ...],
    liveness: Liveness,
    is_vital: bool = True,
) -> None:
    """
    Run the routine; restart it with growing delays if it fails; an end is a failure, too.

    ``fatal`` errors are raised at once, all others when a vital task fails repeatedly. Before that, the failure goes to
    ``liveness``, so that the operator is unhealthy. A task that is not vital restarts forever: a problem with one
    resource must not end the work for all others.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    try:
        while True:
            started = loop.time()
            try:
                # All in one coroutine: each event passes through all coroutines between the event loop and the work.
                with _noting_stability(name, liveness):
                    await start()
                raise RuntimeError("it has ended, while it must run as long as the operator does")
            except fatal:
                raise
            except Exception as e:
                failures = 1 if loop.time() - started >= _STABLE_AFTER else failures + 1
                if failures > len(_BACKOFFS) and is_vital:
                    raise
                delay = _BACKOFFS[min(failures, len(_BACKOFFS)) - 1]
                liveness.note_failure(name, failures, str(e) or type(e).__name__)
                logger.exception("The %s has failed, and will be restarted in %s seconds: %s", name, delay, e)
                await asyncio.sleep(delay)
    finally:
        liveness.note_recovery(name)


@contextlib.contextmanager
def _noting_stability(name: str, liveness: Liveness) -> Iterator[None]:
    """Note that the task is healthy if the block lasts for long."""
    stability = asyncio.get_running_loop().call_later(_STABLE_AFTER, liveness.note_recovery, name)
    try:
        yield
    finally:
        stability.cancel()
