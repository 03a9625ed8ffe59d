"""Log messages about clients, limited in rate, as clients could cause any number."""

from __future__ import annotations

import logging
import time
from typing import Any


class RateLimitedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs only ``burst`` messages of a kind in every ``interval`` (seconds), and counts the rest."""

    def __init__(self, logger: logging.Logger, *, burst: int, interval: float = 60.0) -> None:
        super().__init__(logger)
        self._burst = burst
        self._interval = interval
        self._seen: dict[object, tuple[float, int]] = {}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message, unless there were too many of this kind."""
        if not self.isEnabledFor(level):
            return
        now = time.monotonic()
        since, count = self._seen.get(msg, (now, 0))
        text = msg
        if now - since >= self._interval:
            text = f"{msg} (And {count - self._burst} more like this.)" if count > self._burst else msg
            since, count = now, 0
        self._seen[msg] = (since, count + 1)
        if count < self._burst:
            super().log(level, text, *args, **kwargs)
