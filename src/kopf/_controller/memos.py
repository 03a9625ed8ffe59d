"""In-memory containers: arbitrary values that handlers keep for an object or for the whole operator."""

from __future__ import annotations

import collections
import copy
import functools
from typing import Any

from kopf._values.deferred import Deferred


class Memo(dict[Any, Any]):
    """
    A container of arbitrary values, accessible both as keys and as attributes.

    >>> memo = Memo()
    >>> memo.field = 100
    >>> memo['field']
    100
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError as e:
            raise AttributeError(f"The memo has no value {key!r}.") from e

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delattr__(self, key: str) -> None:
        try:
            del self[key]
        except KeyError as e:
            raise AttributeError(f"The memo has no value {key!r}.") from e

    def __copy__(self) -> Memo:
        return type(self)(self)


class Memos:
    """
    The memos of all objects, made of the memo of the operator when an object is first handled.

    Large because they are dropped only when none of those who can hold a memo needs it.
    """

    def __init__(self, operator_memo: Any) -> None:
        self._origin = operator_memo
        self._snapshot: Any = None
        self._memos: dict[str, Any] = {}
        self._origins: dict[str, Memo] = {}
        self._pinned: set[str] = set()
        self._handled: set[str] = set()
        self._borrowed: collections.Counter[str] = collections.Counter()
        # Only for the memos of the known class: who knows what else custom classes do when they are copied.
        self._is_droppable = type(operator_memo) is Memo

    def __len__(self) -> int:
        return len(self._memos)

    def make(self) -> Any:
        """Make a memo that belongs to no object: it is gone when the caller has no more need for it."""
        return copy.copy(self._origin)

    def recall(self, key: str) -> Any:
        """Get the memo of the object that is being handled: the same one as long as the object exists."""
        self._handled.add(key)
        memo = self._memos[key] if key in self._memos else self._make(key)
        if self._is_droppable and key not in self._origins:
            self._origins[key] = self._get_snapshot()
        return memo

    def defer(self, key: str) -> Any:
        """
        The same for those who mostly do not look at it: get :class:`Deferred`, which makes it if they do.

        It has no visible effects, as it is made of what the operator's memo is now. The memos of custom classes are
        made at once.
        """
        if not self._is_droppable:
            return self.recall(key)
        if key not in self._origins:
            self._origins[key] = self._get_snapshot()
        return Deferred(functools.partial(self.recall, key))

    def borrow(self, key: str) -> Any:
        """The same, but for those who look at the object aside of its handling; to be given back afterwards."""
        self._borrowed[key] += 1
        return self._memos[key] if key in self._memos else self._make(key)

    def give_back(self, key: str) -> None:
        """Tell that the memo is not used by the borrower anymore."""
        self._borrowed[key] -= 1
        if not self._borrowed[key]:
            del self._borrowed[key]
        self._drop_if_unused(key)

    def _make(self, key: str) -> Any:
        origin = self._origins.get(key, self._origin)
        memo = self._memos[key] = Memo(origin) if self._is_droppable else copy.copy(origin)
        return memo

    def _get_snapshot(self) -> Memo:
        """What the operator's memo is now: one copy for all objects that have appeared since its last change."""
        if self._snapshot is None or not _is_same(self._snapshot, self._origin):
            self._snapshot = Memo(self._origin)
        snapshot: Memo = self._snapshot
        return snapshot

    def pin(self, key: str) -> None:
        """Keep the memo for as long as the object exists: somebody holds it."""
        self._pinned.add(key)

    def release(self, key: str) -> None:
        """The object is not handled at the moment: idle objects keep nothing of their own, if nothing was put there."""
        self._handled.discard(key)
        if key in self._memos:
            self._drop_if_unused(key)

    def _drop_if_unused(self, key: str) -> None:
        if not self._is_droppable or key in self._pinned or key in self._handled or key in self._borrowed:
            return
        memo, origin = self._memos.get(key), self._origins.get(key, self._origin)
        # If it is needed again, it is made of what the operator's memo was at the first time, not of what it is then.
        if memo is not None and _is_same(memo, origin):
            del self._memos[key]

    def forget(self, key: str) -> None:
        """Drop the memo of an object that exists no more."""
        self._pinned.discard(key)
        self._handled.discard(key)
        self._origins.pop(key, None)
        self._memos.pop(key, None)


_ABSENT = object()


def _is_same(memo: Memo, other: Memo) -> bool:
    """Tell if the values are the same ones: those that are only equal can be changed, or not comparable at all."""
    if not memo and not other:
        return True  # as mostly
    return len(memo) == len(other) and all(other.get(key, _ABSENT) is value for key, value in [*memo.items()])
