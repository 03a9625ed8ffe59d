"""
Handled memory: what is remembered of the handled objects in case that their persisted state gets lost.

The last handled configuration is kept on the objects, where others can overwrite or remove it, e.g. by replacing
the whole object, or by copying annotations from a parent to its children. Without this memory, such an object looks as
if it has never been handled, and is created again and again.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_SIZE = 4 * 1024 * 1024
"""How many bytes of states are kept for one resource: those of the objects that were handled last."""


class HandledMemory:
    """The fingerprints of the last handled states of the objects of one resource, by their keys."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}
        self._snapshots: dict[str, bytes] = {}
        self._size = 0
        self._losses: dict[str, int] = {}
        self._removals: dict[str, int] = {}
        self._released: set[str] = set()
        # There are no detours here, as it is for every look at every object.
        self.recall: Callable[[str], int | None] = self._fingerprints.get
        """In which state the object was handled by this operator process; ``None`` if it was not."""
        self.is_released: Callable[[str], bool] = self._released.__contains__
        """Tell if all was done for the object that is being deleted, whatever the older states of it look like."""

    def __len__(self) -> int:
        return len({*self._fingerprints, *self._losses, *self._removals, *self._released})

    def remember(self, key: str, fingerprint: int, snapshot: bytes) -> None:
        """The object was handled in this state, which is kept as long as there is room; the fingerprint always is."""
        self._fingerprints[key] = fingerprint
        snapshots = self._snapshots
        self._size += len(snapshot) - len(snapshots.pop(key, b""))
        snapshots[key] = snapshot
        while self._size > MAX_SIZE:
            self._size -= len(snapshots.pop(next(iter(snapshots))))

    def recall_snapshot(self, key: str) -> bytes | None:
        """In which state the object was handled by this process; ``None`` if that is not known anymore."""
        return self._snapshots.get(key)

    def count_loss(self, key: str) -> int:
        """How many times the state of the object was lost, this time included."""
        count = self._losses[key] = self._losses.get(key, 0) + 1
        return count

    def count_removal(self, key: str) -> None:
        """Our finalizer was removed from the object, as it is not needed there."""
        self._removals[key] = self._removals.get(key, 0) + 1

    def get_removals(self, key: str) -> int:
        """How many times our finalizer was removed from the object since it was needed there."""
        return self._removals.get(key, 0)

    def forget_removals(self, key: str) -> None:
        """The finalizer is needed: it is ours again."""
        self._removals.pop(key, None)

    def note_release(self, key: str) -> None:
        """The object is being deleted, and our finalizer was removed: from now on, it is none of our business."""
        self._released.add(key)

    def forget(self, key: str) -> None:
        """The object exists no more."""
        self._fingerprints.pop(key, None)
        self._size -= len(self._snapshots.pop(key, b""))
        self._losses.pop(key, None)
        self._removals.pop(key, None)
        self._released.discard(key)
