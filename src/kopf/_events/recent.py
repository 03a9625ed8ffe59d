"""The memory of the recent events: limited in time and size, so what was not used for the longest time is forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Dated(Protocol):
    """What is updated whenever it is used."""

    updated_at: float


V = TypeVar("V", bound=Dated)

CAPACITY = 2000
"""How many of the latest events and objects are remembered."""


class RecentItems(Generic[V]):
    """The recently used items; the others are forgotten."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """Find the item, and consider it as used."""
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
        return item

    def forget_until(self, moment: float) -> None:
        """Forget what was updated at that moment or before."""
        while self._items and next(iter(self._items.values())).updated_at <= moment:
            self._items.popitem(last=False)

    def put(self, key: Hashable, item: V) -> V:
        """Remember the item, and give it back."""
        self._items[key] = item
        self._items.move_to_end(key)
        if len(self._items) > CAPACITY:
            self._items.popitem(last=False)
        return item
