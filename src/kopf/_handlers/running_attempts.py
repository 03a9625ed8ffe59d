"""
Running attempts: the handlers that run now, and their start times, for log lines about long ones.

There are thousands of attempts per second, and few of them are long. So, each attempt is only an entry of a
dictionary. One timer for all attempts checks it when the oldest attempt can be a long one.
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
"""The age of an attempt at the first log line, in seconds; at the next log line, it is twice as old."""


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
        """Note by its key that an attempt is over. It is a plain method of the dictionary for speed."""

    def enter(self, handler: Handler, logger: Logger) -> int:
        """Note that an attempt begins, and return its key."""
        now = self._get_time()
        if now > self._next_check:
            now = self._begin(now)
        key = self._make_key()
        self._entries[key] = handler, logger, now
        return key

    def _begin(self, now: float) -> float:
        loop = asyncio._get_running_loop()
        if loop is None:  # unit tests can call functions without it, and need no message
            return now
        self._get_time = loop.time
        now = loop.time()
        self._plan(loop, now + PATIENCE)
        return now

    def stop(self) -> None:
        """Log nothing from now on."""
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
                # It is not posted, as the events will show the outcome.
                logger.info("%s has been running for %.0f seconds.", handler, age, extra={"k8s_skip": True})
                due = self._due[key] = started + 2 * (due - started)
            soonest = min(soonest, due)
        if soonest < math.inf:
            self._plan(loop, soonest)
        else:
            self._next_check = -math.inf
