"""
The source of time: the date, and events with timeouts for threads; and the clock of an operator.

Each simulation has a source of its own.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from datetime import UTC, datetime


class TimeSource:
    """The real time."""

    def now(self) -> datetime:
        """Get the current date and time, with the time zone (UTC)."""
        return datetime.now(UTC)

    def make_event(self) -> threading.Event:
        """Make an event with timeouts in this time, in any thread."""
        return threading.Event()


time_source: ContextVar[TimeSource] = ContextVar("time_source", default=TimeSource())  # noqa: B039  # it has no state
"""The source of time of the current context."""


class Clock:
    """
    Wall-clock timestamps that advance with the time of the event loop in which the clock was made.

    So the jumps of the system clock do not affect the delays, and on a fast-forwarded loop the timestamps move along.
    """

    def __init__(self) -> None:
        self._get_time = asyncio.get_running_loop().time
        self._offset = time_source.get().now().timestamp() - self._get_time()

    def now(self) -> datetime:
        """The current time, with the time zone (UTC)."""
        return datetime.fromtimestamp(self._get_time() + self._offset, UTC)

    def get_timestamp(self) -> float:
        """The same in seconds since the epoch; it can be asked for in other threads, too."""
        return self._get_time() + self._offset
