"""
Pausing: what must not be handled at the moment, and why: everything, or those objects that somebody else handles.

It is a gate with many holders: it is shut as long as anybody holds it. No handlers are started behind it, daemons &
timers are stopped. It says nothing of the streams: who holds everything, has no need for them, so they are stopped,
too; when it goes on, everything is listed anew, and compared to what was known, so that nothing is lost, and nothing is
handled twice. Who holds some objects only, lets the streams go on, and the states of the objects are kept up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

Covers = Callable[[str], bool]
"""Tells by the key of an object if it is held."""


class Pause:
    """The gate of one operator."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether the whole operator is paused."""
        self._reasons: dict[Hashable, str] = {}
        self._covers: Covers | None = None
        self._listeners: list[Callable[[], None]] = []
        self.on_partial: list[Callable[[], None]] = []
        """What is called when some of the objects are held, or are held no more."""

    @property
    def reasons(self) -> Collection[str]:
        """Why it is paused, for humans; empty if it is not."""
        return tuple(self._reasons.values())

    def is_held(self, key: str) -> bool:
        """Tell if the object is held by itself; whether the whole operator is paused, is another question."""
        return self._covers is not None and self._covers(key)

    def stops(self, key: str) -> bool:
        """Tell if nothing is to begin for the object: because of itself, or as the whole operator is paused."""
        return self.is_on or self.is_held(key)

    def hold_some(self, covers: Covers | None) -> None:
        """Hold these objects instead of those held before; ``None`` releases all of them."""
        if covers is not None or self._covers is not None:
            self._covers = covers
            for listener in [*self.on_partial]:
                listener()

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
