"""The source of time: the date, and events with timeouts for threads. Each simulation has a source of its own."""

from __future__ import annotations

import datetime
import threading
from contextvars import ContextVar


class TimeSource:
    """The real time."""

    def now(self) -> datetime.datetime:
        """Get the current date and time, with the time zone (UTC)."""
        return datetime.datetime.now(datetime.UTC)

    def make_event(self) -> threading.Event:
        """Make an event with timeouts in this time, in any thread."""
        return threading.Event()


time_source: ContextVar[TimeSource] = ContextVar("time_source", default=TimeSource())  # noqa: B039  # it has no state
"""The source of time of the current context."""
