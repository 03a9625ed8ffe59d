"""
A versioned store of opaque records with a log of their changes, as etcd in a real cluster.

The store knows buckets, keys, revisions, and bytes; it knows nothing of Kubernetes kinds or HTTP.
Every write takes the next revision of one counter for all buckets, so that revisions order all changes.
All buckets together remember a limited size of changes.

Nothing here awaits: a write is atomic on the event loop.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kopf_cluster.store.watch_cache import Bucket, Change, Record

DEFAULT_HISTORY: Final = 32 * 1024 * 1024
"""The maximal size of the remembered changes, in bytes; the oldest ones are forgotten."""


class Closed(Exception):
    """The store accepts no more changes."""


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
