"""
Deadlines of requests, with one timer for all. As a rule, requests end long before it fires.

A timer for each request would cost several times more than the rest of its bookkeeping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

_PRECISION = 0.05
"""The largest delay if there are many deadlines, in seconds."""


class SharedTimer:
    """One timer for many deadlines: timers that are set and cancelled all the time are expensive."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self._deadline = 0.0
        """The time of the call. Event loops may not know it exactly: ``uvloop`` has whole milliseconds, if any."""

    def ring_at(self, deadline: float) -> None:
        """Call the function at that time of the event loop, or earlier if an earlier call is planned."""
        if self._handle is not None:
            if self._deadline <= deadline:
                return
            self._handle.cancel()
        self._deadline = deadline
        self._handle = asyncio.get_running_loop().call_at(deadline, self._ring)

    def stop(self) -> None:
        """Cancel the planned call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._callback()


class Timed(Protocol):
    """Anything with a deadline."""

    def check(self, now: float) -> float | None:
        """Fail if it is too late. Otherwise, return the time of the next check, if any, in the time of the loop."""


class Deadlines:
    """The items with deadlines."""

    def __init__(self) -> None:
        self._followed: dict[Timed, None] = {}
        self._timer = SharedTimer(self._check)

    def follow(self, item: Timed, due: float) -> None:
        """Check the item at that time of the event loop, and then whenever it says."""
        self._followed[item] = None
        self._timer.ring_at(due)

    def forget(self, item: Timed) -> None:
        """Stop following the item."""
        self._followed.pop(item, None)

    def stop(self) -> None:
        """Stop following all items."""
        self._followed.clear()
        self._timer.stop()

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        dues = [due for item in list(self._followed) if (due := item.check(now)) is not None]
        if dues:
            self._timer.ring_at(max(min(dues), now + _PRECISION))
