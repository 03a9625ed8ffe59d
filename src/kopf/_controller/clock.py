"""
The clock of an operator: wall-clock timestamps that advance with the time of the event loop.

So the jumps of the system clock do not affect the delays, and on a fast-forwarded loop the timestamps move along.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kopf._handlers.time_source import time_source


class Clock:
    """Tells the time. It belongs to the event loop in which it was made."""

    def __init__(self) -> None:
        self._get_time = asyncio.get_running_loop().time
        self._offset = time_source.get().now().timestamp() - self._get_time()

    def now(self) -> datetime:
        """The current time, with the time zone (UTC)."""
        return datetime.fromtimestamp(self._get_time() + self._offset, UTC)

    def get_timestamp(self) -> float:
        """The same in seconds since the epoch; it can be asked for in other threads, too."""
        return self._get_time() + self._offset
