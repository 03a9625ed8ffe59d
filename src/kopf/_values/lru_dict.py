"""A dictionary with a limit, which forgets the least recently used items (LRU)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUDict(OrderedDict[K, V]):
    """
    The items, the latest ones last. Only :meth:`note` and :meth:`obtain` are uses.

    :param limit: the largest number of items.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def note(self, key: K, value: V) -> None:
        """Add or replace the item."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)

    def obtain(self, key: K, make: Callable[[], V]) -> V:
        """Get the item; make it if it is not there."""
        try:
            self.move_to_end(key)
        except KeyError:
            self.note(key, make())
        return self[key]
