"""Indices: mappings of keys to the values of many objects, as handlers get them, in any thread."""

from __future__ import annotations

from collections.abc import Collection, Hashable, ItemsView, Iterator, Mapping, ValuesView
from typing import Generic, TypeVar

from kopf._values.resources import Resource

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ObjectKey = tuple[Resource, str]
"""The object that a value belongs to: its resource and UID."""


class Store(Collection[V], Generic[V]):
    """
    All values under one key of an index: a read-only collection with at most one value of each object; never empty.

    It changes with the objects. Threads can read it safely.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[ObjectKey, V] = {}

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._items.values()))  # a snapshot: the store can change during the iteration

    def __contains__(self, item: object) -> bool:
        return any(value == item for value in self)


class Index(Mapping[K, Store[V]], Generic[K, V]):
    """
    A read-only mapping of keys to the collections of their values (:class:`Store`).

    It changes with the objects. Threads can read it safely. A missing key raises :class:`KeyError`.
    """

    __slots__ = ("_keys_of", "_stores")

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys_of: dict[ObjectKey, tuple[K, ...]] = {}

    def __repr__(self) -> str:
        return repr(dict(self._stores))

    def __len__(self) -> int:
        return len(self._stores)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    # Snapshots, too: the inherited methods look the keys up one by one, and keys can disappear meanwhile.
    def items(self) -> ItemsView[K, Store[V]]:
        return dict(self._stores).items()

    def values(self) -> ValuesView[Store[V]]:
        return dict(self._stores).values()

    def _replace(self, owner: ObjectKey, values: Mapping[K, V]) -> None:
        """Replace the values of the object."""
        for key in self._keys_of.get(owner, ()):
            if key not in values:
                self._drop(owner, key)
        for key, value in values.items():
            store = self._stores.get(key)
            if store is None:
                store = self._stores[key] = Store()
            store._items[owner] = value
        if values:
            self._keys_of[owner] = tuple(values)
        else:
            self._keys_of.pop(owner, None)

    def _drop(self, owner: ObjectKey, key: K) -> None:
        store = self._stores[key]
        store._items.pop(owner, None)
        if not store._items:
            del self._stores[key]
