"""
Deadlines: one timer for all who have them. As a rule, they are over long before it fires.

A timer for each request is several times as expensive as all the rest of its bookkeeping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

_PRECISION = 0.05
"""How late it can be if there are many deadlines, in seconds."""


class SharedTimer:
    """One timer for all: timers that are cancelled all the time cost more than what they are for."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self._deadline = 0.0
        """When it rings. Not all event loops can tell it: those of ``uvloop`` know whole milliseconds, if any."""

    def ring_at(self, deadline: float) -> None:
        """Call the function at that time of the event loop, or earlier if it is to be called earlier anyway."""
        if self._handle is not None:
            if self._deadline <= deadline:
                return
            self._handle.cancel()
        self._deadline = deadline
        self._handle = asyncio.get_running_loop().call_at(deadline, self._ring)

    def stop(self) -> None:
        """Do not call it."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._callback()


class Timed(Protocol):
    """What has a deadline."""

    def check(self, now: float) -> float | None:
        """Fail if it is too late; otherwise, tell when to come again, by the clock of the event loop, if ever."""


class Deadlines:
    """What is followed at the moment."""

    def __init__(self) -> None:
        self._followed: dict[Timed, None] = {}
        self._timer = SharedTimer(self._check)

    def follow(self, item: Timed, due: float) -> None:
        """Check the item when it is due, in the time of the event loop, and then as it says."""
        self._followed[item] = None
        self._timer.ring_at(due)

    def forget(self, item: Timed) -> None:
        """Follow it no more."""
        self._followed.pop(item, None)

    def stop(self) -> None:
        """Follow nothing."""
        self._followed.clear()
        self._timer.stop()

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        dues = [due for item in list(self._followed) if (due := item.check(now)) is not None]
        if dues:
            self._timer.ring_at(max(min(dues), now + _PRECISION))
