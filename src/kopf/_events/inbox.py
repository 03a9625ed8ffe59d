"""The way of the reports from other threads to the event loop of the operator; the loop can be blocked meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from kopf._events.event_records import EventReport

CAPACITY = 1000
"""How many reports can be on their way; the excessive ones are dropped."""


class Inbox:
    """Takes reports in any thread, gives them away in the event loop in which it was made."""

    def __init__(self, take: Callable[[EventReport], None], report_overflow: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._take = take
        self._report_overflow = report_overflow
        self._reports: deque[EventReport] = deque()
        self._is_taking_planned = False
        self._is_overflown = False

    def put(self, report: EventReport) -> None:
        """Take a report in; at once if it is in the event loop. It never blocks and never fails."""
        if _is_in_loop(self.loop):
            self._take(report)
            return
        if len(self._reports) < CAPACITY:
            self._reports.append(report)
        else:
            self._is_overflown = True
        if not self._is_taking_planned:
            self._is_taking_planned = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, the operator is over
                self.loop.call_soon_threadsafe(self.empty)

    def empty(self) -> None:
        """Give away all that has come so far."""
        self._is_taking_planned = False  # before the rest: who comes later, plans it again
        if self._is_overflown:
            self._is_overflown = False
            self._report_overflow()
        while self._reports:
            self._take(self._reports.popleft())


def _is_in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
