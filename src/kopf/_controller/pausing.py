"""
Pausing: what must not be handled now, and why: everything, or the objects that another replica handles.

While anybody holds the whole operator, no handlers start, daemons and timers stop, and so do the streams. Afterwards,
everything is listed anew, and compared with the known objects, so that nothing is lost or handled twice. While only
some objects are held, the streams go on, and the states of these objects stay up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

Covers = Callable[[str], bool]
"""Tells if the object with this key is held."""


class Pause:
    """The holds of one operator."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether the whole operator is paused."""
        self._reasons: dict[Hashable, str] = {}
        self.covers: Covers | None = None
        """The objects that are held apart from a pause of the whole operator, if any."""
        self._listeners: list[Callable[[], None]] = []
        self.on_partial: list[Callable[[], None]] = []
        """The listeners to changes of the held objects."""

    @property
    def reasons(self) -> Collection[str]:
        """Why the operator is paused, for humans; empty if it is not."""
        return tuple(self._reasons.values())

    def is_held(self, key: str) -> bool:
        """Tell if the object itself is held, apart from a pause of the whole operator."""
        return self.covers is not None and self.covers(key)

    def stops(self, key: str) -> bool:
        """Tell if nothing may begin for the object: it is held, or the whole operator is paused."""
        return self.is_on or (self.covers is not None and self.covers(key))

    def hold_some(self, covers: Covers | None) -> None:
        """Hold these objects instead of the previous ones; ``None`` releases all."""
        if covers is not None or self.covers is not None:
            self.covers = covers
            for listener in [*self.on_partial]:
                listener()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener every time when the operator is paused or goes on."""
        self._listeners.append(listener)

    def hold(self, key: Hashable, reason: str) -> None:
        """Pause the operator until the key is released, or replace the reason of the key."""
        was_on = self.is_on
        self._reasons[key] = reason
        self.is_on = True
        if not was_on:
            self._notify()

    def release(self, key: Hashable) -> None:
        """Let the operator go on, unless other keys hold it."""
        was_on = self.is_on
        self._reasons.pop(key, None)
        self.is_on = bool(self._reasons)
        if was_on and not self.is_on:
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
