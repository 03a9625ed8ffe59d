"""
The source of time: the date, and events that threads wait for. A simulation has its own for all that runs in it.
"""

from __future__ import annotations

import datetime
import threading
from contextvars import ContextVar


class TimeSource:
    """The real time."""

    def now(self) -> datetime.datetime:
        """The current date and time, with the time zone (UTC)."""
        return datetime.datetime.now(datetime.UTC)

    def make_event(self) -> threading.Event:
        """Make an event whose timeouts are of this time; in any thread."""
        return threading.Event()


time_source: ContextVar[TimeSource] = ContextVar("time_source", default=TimeSource())  # noqa: B039  # it has no state
"""What the time comes from in the current context."""
