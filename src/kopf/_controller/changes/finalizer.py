"""
The policy of our finalizer: when it is put on an object, and when it is removed.

It blocks the deletion until everything is done: the deletion handlers, the daemons & timers. It is only there as long
as something needs it. See ``docs/decisions/finalizers.md``.
"""

from __future__ import annotations

from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange
from kopf._values.records import FrozenRecord

MAX_REMOVALS = 3
"""How many times an unneeded finalizer is removed, until it is obvious that somebody else insists on it."""


class Blocking(FrozenRecord, frozen=True):
    """How the deletion of an object is blocked."""

    is_deleted: bool
    """Whether the object is marked for deletion."""
    is_ours: bool
    """Whether our finalizer is on the object."""
    is_last: bool
    """Whether there will be no object once our finalizer is removed."""

    @classmethod
    def of(cls, obj: KubeObject, finalizer: str) -> Blocking:
        """Look at the object."""
        is_deleted, finalizers = obj.head.deletionTimestamp is not None, obj.head.finalizers
        if finalizers is None:
            return _NOT_BLOCKED_DELETED if is_deleted else _NOT_BLOCKED
        return cls(is_deleted, finalizer in finalizers, is_deleted and finalizers == [finalizer])


_NOT_BLOCKED = Blocking(is_deleted=False, is_ours=False, is_last=False)
_NOT_BLOCKED_DELETED = Blocking(is_deleted=True, is_ours=False, is_last=False)


def choose_change(blocking: Blocking, *, is_required: bool, is_kept: bool, removals: int) -> FinalizerChange | None:
    """
    Decide what to do with the finalizer if nothing is being finished right now.

    It is kept while it is in doubt whether it is required, or while something still runs for the object. It is not
    removed again & again either, if it was removed so many times already, and somebody else puts it back.
    """
    if is_required:
        return None if blocking.is_ours or blocking.is_deleted else FinalizerChange.ADD
    if not blocking.is_ours or is_kept:
        return None
    return FinalizerChange.REMOVE if blocking.is_deleted or removals < MAX_REMOVALS else None
