"""
A versioned store of opaque records with a log of their changes, as etcd in a real cluster.

The store knows buckets, keys, revisions, and bytes; it knows nothing of Kubernetes kinds or HTTP.
Every write takes the next revision of one counter for all buckets, so that revisions order all changes.
Each bucket remembers its recent changes, so that a reader can continue from any revision that it has seen,
or look at the past; older revisions are refused with `Compacted`.

Nothing here awaits: a write is atomic on the event loop. Records are never modified,
only replaced, so they are shared freely by readers, watchers, and the log.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Key: TypeAlias = tuple[str, str]
"""The namespace (empty for cluster-wide objects) and the name."""

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

DEFAULT_HISTORY: Final = 32 * 1024 * 1024
"""The maximal size of the remembered changes, in bytes; the oldest ones are forgotten."""

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


class Closed(Exception):
    """The store accepts no more changes."""


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


class Store:
    """All buckets and the revision counter they share."""

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        self.revision = 1
        self.compacted = 0
        self.observers: list[Callable[[str, Change], None]] = []
        self._buckets: dict[str, Bucket] = {}
        self._history = history
        self._remembered = 0
        self._order: collections.deque[Bucket] = collections.deque()
        self._closed = False

    @property
    def next_revision(self) -> int:
        """The revision that the next written record must carry."""
        return self.revision + 1

    def bucket(self, name: str) -> Bucket:
        """Return the bucket, which is created on the first use."""
        try:
            return self._buckets[name]
        except KeyError:
            return self._buckets.setdefault(name, Bucket(self.compacted))

    def put(self, bucket: str, record: Record) -> None:
        """Add or replace the record under its key."""
        previous = self.bucket(bucket).records.get(record.key)
        self._append(bucket, Change("ADDED" if previous is None else "MODIFIED", record, previous))

    def remove(self, bucket: str, record: Record) -> None:
        """Remove the record with the same key; this record is the last state for the log."""
        previous = self.bucket(bucket).records[record.key]
        self._append(bucket, Change("DELETED", record, previous))

    def _append(self, name: str, change: Change) -> None:
        if self._closed:
            raise Closed("the store is closed")
        if change.record.revision != self.next_revision:
            raise ValueError(f"the record is for revision {change.record.revision}, not {self.next_revision}")
        self.revision = change.record.revision
        bucket = self.bucket(name)
        bucket.append(change)
        self._order.append(bucket)
        self._remembered += change.weight
        while self._remembered > self._history and len(self._order) > 1:
            self._remembered -= self._order.popleft().forget_oldest().weight
        for observer in self.observers:
            observer(name, change)

    def restore(self, revision: int, bucket_records: Iterable[tuple[str, Record]]) -> None:
        """Start with these records of another store at the revision, without a history before it."""
        self.revision = self.compacted = revision
        for name, record in bucket_records:
            self.bucket(name).restore(record)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """Yield all current records with the names of their buckets."""
        for name, bucket in self._buckets.items():
            for record in bucket.select():
                yield name, record

    def drop(self, name: str) -> None:
        """Remove an empty bucket, and close it for its listeners."""
        bucket = self._buckets.pop(name, None)
        if bucket is not None:
            self._remembered -= sum(change.weight for change in bucket.remembered())
            self._order = collections.deque(other for other in self._order if other is not bucket)
            bucket.close()

    def compact(self) -> None:
        """Clear the history: only the current states remain."""
        self.compacted = self.revision
        for bucket in self._buckets.values():
            bucket.forget_all(self.revision)
            bucket.notify()
        self._order.clear()
        self._remembered = 0

    def close(self) -> None:
        """Accept no more changes, and close all buckets for their listeners."""
        self._closed = True
        for bucket in self._buckets.values():
            bucket.close()
