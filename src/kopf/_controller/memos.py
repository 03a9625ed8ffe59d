"""Memos: in-memory containers of arbitrary values that handlers keep for an object or for the whole operator."""

from __future__ import annotations

import copy
from typing import Any

from kopf._handlers.causes import Deferred
from kopf._values.records import Record
from kopf._values.slots import Slots, get_slot


class Memo(dict[Any, Any]):
    """
    A dictionary of arbitrary values, which are also its attributes.

    A missing value raises :class:`KeyError` as a key, and :class:`AttributeError` as an attribute.

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


_ABSENT = object()


class _ObjectMemo(Record, eq=False):
    """The memo of one object, and its possible users."""

    memo: Any
    is_handled: bool = False
    is_pinned: bool = False
    borrowers: int = 0


class Memos:
    """
    The memos of all objects; each is a copy of the operator's memo as of the first handling of the object.

    Large because handlers, reviews, and moves to other replicas begin and end the life of a memo in different ways.
    """

    def __init__(self, operator_memo: Any) -> None:
        self._origin = operator_memo
        self._snapshot: Any = None
        self._entries: dict[str, _ObjectMemo] = {}
        self._origins: dict[str, Memo] = {}
        """Copies of the operator's memo as of the first handling of each object."""
        # Only memos of the known class: copying a custom class can have side effects.
        self._is_droppable = type(operator_memo) is Memo

    def __len__(self) -> int:
        return len(self._entries)

    def make(self) -> Any:
        """Make a memo that belongs to no object, for the caller alone."""
        return copy.copy(self._origin)

    def recall(self, key: str, *, pinned: bool = False) -> Any:
        """
        Return the memo of an object that is being handled: the same one as long as the object exists.

        If ``pinned``, the caller keeps it as long as the object exists, so it is never made anew.
        """
        entry = self._obtain(key)
        entry.is_handled = True
        entry.is_pinned = entry.is_pinned or pinned
        if self._is_droppable and key not in self._origins:
            self._origins[key] = self._get_snapshot()
        return entry.memo

    def defer(self, key: str) -> Any:
        """
        Return a :class:`Deferred`, which makes the memo on the first use, for callers that rarely use it.

        The memo is as if it was made now: a copy of the operator's memo of this moment. Memos of custom classes are
        made at once.
        """
        if not self._is_droppable:
            return self.recall(key)
        if key not in self._origins:
            self._origins[key] = self._get_snapshot()
        return Deferred(self.recall, key)

    def borrow(self, key: str) -> Any:
        """Return the memo for a use outside of the handling; :meth:`give_back` must follow."""
        entry = self._obtain(key)
        entry.borrowers += 1
        return entry.memo

    def give_back(self, key: str) -> None:
        """Accept that the borrower does not use the memo anymore."""
        entry = self._entries.get(key)
        if entry is not None:  # otherwise, the object has gone meanwhile
            entry.borrowers = max(0, entry.borrowers - 1)
            self._drop_if_unused(key, entry)

    def release(self, key: str) -> None:
        """Accept that the object is idle now: drop its memo if the handlers have put nothing there."""
        entry = self._entries.get(key)
        if entry is not None and entry.is_handled:  # mostly, no handler has used it
            entry.is_handled = False
            self._drop_if_unused(key, entry)

    def forget(self, key: str) -> None:
        """Drop the memo of an object that does not exist anymore."""
        self._entries.pop(key, None)
        self._origins.pop(key, None)

    def hand_over(self, slots: Slots) -> None:
        """Drop the memos of the objects of these slots, which are of another replica now."""
        for key in [key for key in {*self._entries, *self._origins} if get_slot(key) in slots]:
            self.forget(key)

    def _obtain(self, key: str) -> _ObjectMemo:
        entry = self._entries.get(key)
        if entry is None:
            origin = self._origins.get(key, self._origin)
            entry = self._entries[key] = _ObjectMemo(Memo(origin) if self._is_droppable else copy.copy(origin))
        return entry

    def _get_snapshot(self) -> Memo:
        """Return a copy of the operator's memo: one for all objects that have appeared since its last change."""
        if self._snapshot is None or not _is_same(self._snapshot, self._origin):
            self._snapshot = Memo(self._origin)
        snapshot: Memo = self._snapshot
        return snapshot

    def _drop_if_unused(self, key: str, entry: _ObjectMemo) -> None:
        if not self._is_droppable or entry.is_pinned or entry.is_handled or entry.borrowers:
            return
        # If it is needed again, it is made of the operator's memo as of the first time, not of the current one.
        if _is_same(entry.memo, self._origins.get(key, self._origin)):
            del self._entries[key]


def _is_same(memo: Memo, other: Memo) -> bool:
    """Tell if the values are identical: values that are only equal can change later, or be incomparable."""
    if not memo and not other:
        return True  # as mostly
    return len(memo) == len(other) and all(other.get(key, _ABSENT) is value for key, value in [*memo.items()])
