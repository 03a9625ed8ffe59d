"""Readiness of the indices: nothing is handled until all that existed before the operator is indexed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable


class IndexReadiness:
    """Holds the handling back until all that must be known before it is known."""

    def __init__(self) -> None:
        self.is_open = True
        """Whether the handling can go on."""
        self._awaited: set[Hashable] = set()
        self._listeners: list[Callable[[], None]] = []

    def close_for(self, keys: Iterable[Hashable]) -> None:
        """Be not ready until all these are done."""
        self._awaited.update(keys)
        self.is_open = not self._awaited

    def done(self, key: Hashable) -> None:
        """One of the awaited is done: for good or bad, it is not to be waited for anymore."""
        if key in self._awaited:
            self._awaited.discard(key)
            self.is_open = not self._awaited
            if self.is_open:
                listeners, self._listeners = self._listeners, []
                for listener in listeners:
                    listener()

    def call_when_open(self, listener: Callable[[], None]) -> None:
        """Call it once when all is ready."""
        self._listeners.append(listener)
