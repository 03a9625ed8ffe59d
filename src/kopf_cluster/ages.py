"""
Timestamps of objects, and ages in the form of ``kubectl get``.
"""

from __future__ import annotations

import contextvars
import datetime
from collections.abc import Callable
from typing import Any, Final

_UNKNOWN: Final = "<unknown>"


class Clock:
    """The wall clock of one server, which can be moved."""

    def __init__(self) -> None:
        self.offset = 0.0
        """The difference to the real time, in seconds; negative for a clock that is behind."""
        self.tell: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
        """Returns the real time with its time zone; simulations replace it."""

    def use(self) -> None:
        """Use this clock in the current context, and in all contexts that are copied from it."""
        _clock.set(self)


_clock: contextvars.ContextVar[Clock] = contextvars.ContextVar("clock", default=Clock())  # noqa: B039


def moment() -> datetime.datetime:
    """Return the current wall-clock time."""
    clock = _clock.get()
    return clock.tell() + datetime.timedelta(seconds=clock.offset)


def now() -> str:
    """Return the current wall-clock time as a Kubernetes timestamp: whole seconds, UTC."""
    return stamp(moment())


def stamp(time: datetime.datetime) -> str:
    """Format a time as a Kubernetes timestamp."""
    return f"{time.isoformat(timespec='seconds')[:19]}Z"  # three times faster than strftime


def micro_now() -> str:
    """Return the current wall-clock time with microseconds, as in Leases and events."""
    return moment().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def age(timestamp: Any) -> str:
    """Return the age of the timestamp, e.g. ``5m10s``, or ``<unknown>`` if it is not a timestamp."""
    if not isinstance(timestamp, str):
        return _UNKNOWN
    try:
        past = datetime.datetime.fromisoformat(timestamp)
    except ValueError:
        return _UNKNOWN
    if past.tzinfo is None:
        past = past.replace(tzinfo=datetime.UTC)
    return human_duration(int((moment() - past).total_seconds()))


def human_duration(seconds: int) -> str:
    """Format a duration, in seconds, as Kubernetes does: the longer it is, the less precise."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _pair(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _pair(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"
