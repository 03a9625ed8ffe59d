"""
Deadlines: one timer for all requests of a session. As a rule, they are over long before it fires.

A timer for each request is several times as expensive as all the rest of its bookkeeping.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

_PRECISION = 0.05
"""How late it can be if there are many deadlines, in seconds."""


class Timed(Protocol):
    """What has a deadline."""

    def check(self, now: float) -> float | None:
        """Fail if it is too late; otherwise, tell when to come again, by the clock of the event loop, if ever."""


class Deadlines:
    """What is followed at the moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._followed: dict[Timed, None] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """When the timer fires. Not all event loops can tell it: those of ``uvloop`` know milliseconds, if any."""

    def follow(self, item: Timed, due: float) -> None:
        """Check the item when it is due, in the time of the event loop, and then as it says."""
        self._followed[item] = None
        if self._timer is None or due < self._due:
            self._arm(due)

    def forget(self, item: Timed) -> None:
        """Follow it no more."""
        self._followed.pop(item, None)

    def stop(self) -> None:
        """Follow nothing."""
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        dues = [due for item in list(self._followed) if (due := item.check(now)) is not None]
        if dues:
            self._arm(max(min(dues), now + _PRECISION))
