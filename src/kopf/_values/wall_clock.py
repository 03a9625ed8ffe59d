"""
The wall clock: the current date and time, which a simulation can replace for all that runs in it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextvars import ContextVar


def _tell_real_time() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


wall_clock: ContextVar[Callable[[], datetime.datetime]] = ContextVar("wall_clock", default=_tell_real_time)
"""What tells the time in the current context, with the time zone (UTC)."""
