"""
The backlog: what listeners have heard, but have not thought about yet.

When an operator has little to do, each fact comes to a processor that has done something else meanwhile: the code and
the data of the listeners are not in its caches, and take several times more of its time than they would otherwise. So,
the listeners only note what they need of the facts, and think about many of them together, or when somebody asks.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

MAX_NOTES = 512
"""How many notes can wait."""
MAX_WEIGHT = 2**18
"""How much memory they may hold beside themselves, in bytes."""
_MAX_COMPLAINTS = 100


class Backlog:
    """The notes, in their order. They are taken by any thread, and processed by one of them at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """It is held while the notes are processed."""
        self._notes: collections.deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = collections.deque()
        self._weight = 0
        self._now: float | None = None
        self._complaints: set[str] = set()

    @property
    def now(self) -> float:
        """When it was noted what is processed now; otherwise, the current time."""
        return time.time() if self._now is None else self._now

    def note(self, process: Callable[..., None], *args: Any, weight: int = 0) -> None:
        """
        Have it processed later.

        The arguments are not to change, and are not to hold what is large or secret. The weight is what they hold.
        """
        self._notes.append((time.time(), process, args))
        self._weight += weight
        if len(self._notes) >= MAX_NOTES or self._weight > MAX_WEIGHT:
            self.settle()

    def settle(self) -> None:
        """Process all of them."""
        if not self._notes:
            return
        with self.lock:
            if self._now is not None:
                return  # it is asked for by one of them
            self._weight = 0
            try:
                while self._notes:
                    self._now, process, args = self._notes.popleft()
                    self._process(process, args)
            finally:
                self._now = None

    def _process(self, process: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            process(*args)
        except Exception as e:  # it is not the fault of those who tell of something else right now
            if repr(e) not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
                self._complaints.add(repr(e))
                logger.error("What has happened cannot be noted: %r", e, exc_info=e)
