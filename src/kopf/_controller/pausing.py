"""
Pausing: whether the operator must not handle anything at the moment, and why.

It is a toggle with many holders: the operator is paused as long as anybody holds it. While paused, no handlers are
started, daemons & timers are stopped, nothing is listed or watched. When it goes on, everything is listed anew, and
compared to what was known, so that nothing is lost, and nothing is handled twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable


class Pause:
    """The toggle of one operator."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether the operator is paused."""
        self._reasons: dict[Hashable, str] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def reasons(self) -> Collection[str]:
        """Why it is paused, for humans; empty if it is not."""
        return tuple(self._reasons.values())

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call it every time when the operator is paused, and when it goes on."""
        self._listeners.append(listener)

    def hold(self, key: Hashable, reason: str) -> None:
        """Pause the operator until the same key is released; or replace the reason."""
        was_on = self.is_on
        self._reasons[key] = reason
        self.is_on = True
        if not was_on:
            self._notify()

    def release(self, key: Hashable) -> None:
        """Let the operator go on, unless there are others who hold it."""
        was_on = self.is_on
        self._reasons.pop(key, None)
        self.is_on = bool(self._reasons)
        if was_on and not self.is_on:
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
