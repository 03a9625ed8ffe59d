"""
HandledMemory: what is remembered of the handled objects in case that their persisted state gets lost.

The last handled configuration is kept on the objects, where others can overwrite or remove it, e.g. by replacing
the whole object, or by copying annotations from a parent to its children. Without a shadow, such an object looks as if
it has never been handled, and is created again and again.
"""

from __future__ import annotations


class HandledMemory:
    """The fingerprints of the last handled states of the objects of one resource, by their uids."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}
        self._losses: dict[str, int] = {}
        self._removals: dict[str, int] = {}
        self._released: set[str] = set()

    def __len__(self) -> int:
        return len({*self._fingerprints, *self._losses, *self._removals, *self._released})

    def remember(self, uid: str, fingerprint: int) -> None:
        """The object was handled in this state."""
        self._fingerprints[uid] = fingerprint

    def recall(self, uid: str) -> int | None:
        """In which state the object was handled by this operator process; ``None`` if it was not."""
        return self._fingerprints.get(uid)

    def count_loss(self, uid: str) -> int:
        """How many times the state of the object was lost, this time included."""
        count = self._losses[uid] = self._losses.get(uid, 0) + 1
        return count

    def count_removal(self, uid: str) -> None:
        """Our finalizer was removed from the object, as it is not needed there."""
        self._removals[uid] = self._removals.get(uid, 0) + 1

    def get_removals(self, uid: str) -> int:
        """How many times our finalizer was removed from the object since it was needed there."""
        return self._removals.get(uid, 0)

    def forget_removals(self, uid: str) -> None:
        """The finalizer is needed: it is ours again."""
        self._removals.pop(uid, None)

    def note_release(self, uid: str) -> None:
        """The object is being deleted, and our finalizer was removed: from now on, it is none of our business."""
        self._released.add(uid)

    def is_released(self, uid: str) -> bool:
        """Tell if all was done for the object that is being deleted, whatever the older states of it look like."""
        return uid in self._released

    def forget(self, uid: str) -> None:
        """The object exists no more."""
        self._fingerprints.pop(uid, None)
        self._losses.pop(uid, None)
        self._removals.pop(uid, None)
        self._released.discard(uid)
