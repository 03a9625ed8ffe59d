"""Detection: what has happened to an object, judged by its current state and by its last handled one."""

from __future__ import annotations

from kopf._handlers.causes import Change
from kopf._storage.snapshots import Snapshots
from kopf._values import codec
from kopf._values.bodies import BodyEssence
from kopf._values.diffs import EMPTY, Diff, DiffItem, DiffOperation, diff
from kopf._values.objects import KubeObject
from kopf._values.reasons import CREATE, DELETE, FREE, NOOP, RESUME, UPDATE, Reason
from kopf._values.records import FrozenRecord

NOTHING = b"null"
"""The snapshot of an object whose content does not matter."""


class Detection(FrozenRecord, frozen=True):
    """The change that was detected in the object."""

    reason: Reason
    snapshot: bytes = NOTHING
    """The current state, serialised."""
    last: BodyEssence | None = None
    """The last handled state, if there was any, and it is different."""
    is_same: bool = False
    """Whether the last handled state is the same as the current one."""
    change: Change | None = None
    """The two states, if they were decoded to be compared."""

    def get_change(self) -> Change:
        """Return the states for the handlers, which can modify them; the framework itself uses the snapshot."""
        if self.change is not None:
            return self.change
        new: BodyEssence | None = codec.decode(self.snapshot)
        if self.is_same:
            return Change(codec.decode(self.snapshot), new, EMPTY)
        if self.last is None:
            return Change(None, new, Diff((DiffItem(DiffOperation.ADD, (), None, new),)))
        return Change(self.last, new, diff(self.last, new))


def detect(
    obj: KubeObject, snapshots: Snapshots, *, finalizer: str, initial: bool, snapshot: bytes | None = None
) -> Detection:
    """
    Compare the object to its last handled state. The current one can be known: the ``snapshot``.

    ``initial`` means that it existed before the operator started and is not resumed yet. A deletion is only handled
    if our finalizer blocks it: otherwise, it was either handled already or there is no need to.
    """
    head = obj.head
    if head.deletionTimestamp is not None and finalizer not in (head.finalizers or ()):
        return Detection(FREE)
    if snapshot is None:
        snapshot = snapshots.take(obj)
    is_same, last = snapshots.compare(obj, snapshot)
    if head.deletionTimestamp is not None:
        return Detection(DELETE, snapshot, last, is_same)
    if last is None and not is_same:
        return Detection(CREATE, snapshot)
    if not is_same:
        new = codec.decode(snapshot)
        if changes := diff(last, new):
            return Detection(UPDATE, snapshot, last, change=Change(last, new, changes))
    return Detection(RESUME if initial else NOOP, snapshot, is_same=True)
