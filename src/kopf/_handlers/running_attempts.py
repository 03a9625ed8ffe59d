"""
Running attempts: which handlers run right now, and since when, so that those that run for long are not silent.

There are thousands of attempts per second, and hardly any is long. So an attempt is only noted in a dictionary; one
timer for all of them looks there when the oldest one could be long.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable

from kopf._handlers.handlers import Handler
from kopf._logging.loggers import Logger

PATIENCE = 60.0
"""How long an attempt runs until it is mentioned, in seconds; the next time is when it has run for twice as long."""


class RunningAttempts:
    """The attempts of one operator that are not over yet."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Handler, Logger, float]] = {}
        self._due: dict[int, float] = {}
        self._make_key = itertools.count().__next__
        self._get_time = time.monotonic
        self._next_check = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.leave: Callable[[int], object] = self._entries.pop
        """Say by its key that an attempt is over. There are no detours here, as it is for every attempt."""

    def enter(self, handler: Handler, logger: Logger) -> int:
        """An attempt begins; get the key for its end."""
        now = self._get_time()
        if now > self._next_check:
            now = self._begin(now)
        key = self._make_key()
        self._entries[key] = handler, logger, now
        return key

    def _begin(self, now: float) -> float:
        loop = asyncio._get_running_loop()
        if loop is None:  # functions can be called without it in unit tests: nobody would see the message
            return now
        self._get_time = loop.time
        now = loop.time()
        self._plan(loop, now + PATIENCE)
        return now

    def stop(self) -> None:
        """Nobody is interested anymore."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = math.inf

    def _plan(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._next_check = when
        self._timer = loop.call_at(when, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = {key: due for key, due in self._due.items() if key in self._entries}
        soonest = math.inf
        for key, (handler, logger, started) in self._entries.items():
            if handler.is_endless:
                continue
            due = self._due.get(key, started + PATIENCE)
            if due <= now:
                age = now - started
                # Not posted: whoever looks at the events, sees the outcome there.
                logger.info("%s is still running for %.0f seconds.", handler, age, extra={"k8s_skip": True})
                due = self._due[key] = started + 2 * (due - started)
            soonest = min(soonest, due)
        if soonest < math.inf:
            self._plan(loop, soonest)
        else:
            self._next_check = -math.inf
