"""
Timestamps of objects, and ages as ``kubectl get`` shows them.
"""
from __future__ import annotations

import datetime
from typing import Any, Final

_UNKNOWN: Final = "<unknown>"


def now() -> str:
    """Give the current wall-clock time as Kubernetes timestamps have it: whole seconds, UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(timestamp: Any) -> str:
    """Tell how long ago the timestamp was, e.g. ``5m10s``, or ``<unknown>`` if it is not a timestamp."""
    if not isinstance(timestamp, str):
        return _UNKNOWN
    try:
        moment = datetime.datetime.fromisoformat(timestamp)
    except ValueError:
        return _UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return human_duration(int((datetime.datetime.now(datetime.UTC) - moment).total_seconds()))


def human_duration(seconds: int) -> str:
    """Shorten a duration as Kubernetes does: the longer it is, the less precise."""
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
