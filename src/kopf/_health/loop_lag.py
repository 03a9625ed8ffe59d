"""The lag of the event loop: how late it does what it is asked to do. It is asked and looked at in other threads."""

from __future__ import annotations

import time

_WINDOW = 30.0
"""For how long the worst lag is remembered at least, in seconds; at most, it is twice as long."""


class LoopLag:
    """The worst lag of the last minute or so."""

    __slots__ = ("_asked", "_current", "_previous", "_since")

    def __init__(self) -> None:
        self._asked: float | None = None
        self._since = time.perf_counter()
        self._current = self._previous = 0.0

    def ask(self) -> None:
        """The loop is asked to answer as soon as it can."""
        self._asked = time.perf_counter()

    def answer(self) -> None:
        """The loop has answered."""
        asked, self._asked = self._asked, None
        now = time.perf_counter()
        self._turn(now)
        if asked is not None:
            self._current = max(self._current, now - asked)

    def get_worst(self) -> float:
        """Get the lag in seconds; if the loop has not answered yet, it is that late already."""
        asked, now = self._asked, time.perf_counter()
        return max(self._current, self._previous, 0.0 if asked is None else now - asked)

    def _turn(self, now: float) -> None:
        if now - self._since > _WINDOW:
            self._previous, self._current, self._since = self._current, 0.0, now
