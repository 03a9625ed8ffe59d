"""Readiness of the indices: nothing is handled until all objects from before the start are indexed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable


class IndexReadiness:
    """Delays the handling until all namespaces of the indexed resources are listed and indexed."""

    def __init__(self) -> None:
        self.is_open = True
        """Whether the handling can go on."""
        self._awaited: set[Hashable] = set()
        self._listeners: list[Callable[[], None]] = []

    def close_for(self, keys: Iterable[Hashable]) -> None:
        """Wait until all these keys are done."""
        self._awaited.update(keys)
        self.is_open = not self._awaited

    def done(self, key: Hashable) -> None:
        """Wait no longer for this key: it is done, or has failed."""
        if key in self._awaited:
            self._awaited.discard(key)
            self.is_open = not self._awaited
            if self.is_open:
                listeners, self._listeners = self._listeners, []
                for listener in listeners:
                    listener()

    def call_when_open(self, listener: Callable[[], None]) -> None:
        """Call the listener once when everything is ready."""
        self._listeners.append(listener)
