"""
The watch cache of one kind: its objects, and the log of their recent changes, from which watches continue.

A reader can continue from any revision that it has seen, or look at the past, as long as the log goes back that far;
older revisions are refused with `Compacted`. Records are never modified, only replaced, so they are shared freely by
readers, watchers, and the log.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Key: TypeAlias = tuple[str, str]
"""The namespace (empty for cluster-wide objects) and the name."""

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

# The memory of a remembered change besides the encoded object, in bytes.
_OVERHEAD: Final = 512

# Forgotten entries are cut off the list in slabs, as cutting them one by one is quadratic.
_SLAB: Final = 512


class Compacted(Exception):
    """The history before the requested revision has been forgotten."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} is older than the oldest remembered one, {oldest}")
        self.requested = requested
        self.oldest = oldest


class Record(msgspec.Struct, frozen=True):
    """One state of one object: its bytes, and the few facts by which objects are selected and linked."""

    key: Key
    revision: int
    data: bytes
    uid: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...]
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    form: str = ""
    """The form of the data, if there are several."""


class Change(msgspec.Struct, frozen=True):
    """One entry of the log. For a deletion, the record is the object's last state at the new revision."""

    type: ChangeType
    record: Record
    previous: Record | None

    @property
    def weight(self) -> int:
        """The approximate memory of this change, in bytes."""
        return len(self.record.data) + _OVERHEAD


class Bucket:
    """All objects of one kind, ordered by key, with the log of their recent changes."""

    def __init__(self, compacted: int) -> None:
        self.records: dict[Key, Record] = {}
        self.compacted = compacted
        self.closed = False
        self.listeners: dict[Callable[[], None], None] = {}
        """The functions to call after changes, in the order of their registration."""
        self._keys: list[Key] = []
        self._log: list[Change] = []
        self._dropped = 0  # the number of changes that are cut off the log
        self._forgotten = 0  # the number of first changes in the log that are forgotten, but not yet cut off

    def select(self, namespace: str | None = None, after: Key | None = None) -> Iterator[Record]:
        """Yield the current records in the order of keys, of one namespace or of all, after the given key."""
        for key in self._range(self._keys, namespace, after):
            yield self.records[key]

    def snapshot(self, revision: int, namespace: str | None = None, after: Key | None = None) -> Iterator[Record]:
        """Yield the records at the revision. This costs time for every change since then."""
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        past: dict[Key, Record | None] = {}
        for change in reversed(self._log[self.position(revision) - self._dropped :]):
            past[change.record.key] = change.previous
        if not past:
            yield from self.select(namespace, after)
            return
        gone = [key for key in past if key not in self.records]
        keys = sorted(self._keys + gone) if gone else self._keys
        for key in self._range(keys, namespace, after):
            record = past[key] if key in past else self.records[key]
            if record is not None:
                yield record

    def count(self, namespace: str | None = None, after: Key | None = None) -> int:
        """Count the current records of one namespace or of all, after the given key."""
        return len(self._range(self._keys, namespace, after))

    @staticmethod
    def _range(keys: list[Key], namespace: str | None, after: Key | None) -> list[Key]:
        first = 0 if namespace is None else bisect.bisect_left(keys, (namespace, ""))
        last = len(keys) if namespace is None else bisect.bisect_left(keys, (namespace + "\0", ""))
        if after is not None:
            first = max(first, bisect.bisect_right(keys, after))
        return keys[first:last]

    def position(self, revision: int) -> int:
        """Find the log position of the first change that is newer than the revision."""
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        index = bisect.bisect_right(self._log, revision, lo=self._forgotten, key=lambda c: c.record.revision)
        return self._dropped + index

    def read(self, position: int, limit: int) -> list[Change]:
        """Return the changes from the log position on, up to the limit."""
        start = position - self._dropped
        if start < self._forgotten:
            raise Compacted(position, self.compacted)
        return self._log[start : start + limit]

    def append(self, change: Change) -> None:
        key = change.record.key
        if change.type == "DELETED":
            del self.records[key]
            del self._keys[bisect.bisect_left(self._keys, key)]
        else:
            if change.type == "ADDED":
                bisect.insort(self._keys, key)
            self.records[key] = change.record
        self._log.append(change)
        self.notify()

    def restore(self, record: Record) -> None:
        """Add a record without a change in the log."""
        bisect.insort(self._keys, record.key)
        self.records[record.key] = record

    def remembered(self) -> Iterator[Change]:
        """Yield all remembered changes, the oldest first."""
        yield from self._log[self._forgotten :]

    def forget_oldest(self) -> Change:
        change = self._log[self._forgotten]
        self._forgotten += 1
        self.compacted = change.record.revision
        if self._forgotten >= _SLAB and self._forgotten * 2 >= len(self._log):
            self._cut_off()
        return change

    def forget_all(self, revision: int) -> None:
        self._forgotten = len(self._log)
        self.compacted = revision
        self._cut_off()

    def _cut_off(self) -> None:
        del self._log[: self._forgotten]
        self._dropped += self._forgotten
        self._forgotten = 0

    def close(self) -> None:
        self.closed = True
        self.notify()

    def notify(self) -> None:
        for listener in self.listeners:
            listener()
