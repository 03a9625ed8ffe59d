"""
Shadows: what is remembered of the handled objects in case that their persisted state gets lost.

The last handled configuration is kept on the objects, where others can overwrite or remove it, e.g. by replacing
the whole object, or by copying annotations from a parent to its children. Without a shadow, such an object looks as if
it has never been handled, and is created again and again.
"""

from __future__ import annotations

_MAX_RESTORATIONS = 5
"""How many times the lost state of an object is put back, until it is obvious that somebody insists on removing it."""


class Shadows:
    """The digests of the last handled states of the objects of one resource, by their uids."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._restorations: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._digests)

    def remember(self, uid: str, digest: str) -> None:
        """The object was handled in this state."""
        self._digests[uid] = digest

    def recall(self, uid: str) -> str | None:
        """In which state the object was handled by this operator process; ``None`` if it was not."""
        return self._digests.get(uid)

    def may_restore(self, uid: str) -> bool:
        """Tell if it still makes sense to put the lost state back, and count that."""
        count = self._restorations[uid] = self._restorations.get(uid, 0) + 1
        return count <= _MAX_RESTORATIONS

    def forget(self, uid: str) -> None:
        """The object exists no more."""
        self._digests.pop(uid, None)
        self._restorations.pop(uid, None)
