"""
Garbage collection: objects are deleted when their owners are gone.

See "Garbage Collection" and "Owners and Dependents" in the Kubernetes documentation: in the background by default; in
the foreground, when the owner waits for dependents that block its deletion; or not at all, when the dependents are
orphaned.
"""

from __future__ import annotations

from typing import TypeAlias

from kopf_cluster.control.loops import ControlLoop, Objects, without_finalizer
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.store.watch_cache import Change, Key, Record
from kopf_cluster.writes.write_options import FOREGROUND, ORPHAN, DeleteOptions

Place: TypeAlias = tuple[str, Key]


class Collector(ControlLoop):
    """The garbage collector: follows the owner references, and deletes the dependents of gone owners."""

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}  # in the order in which they have come

    def observe(self, bucket: str, change: Change) -> None:
        record, previous = change.record, change.previous
        place = (bucket, record.key)
        if change.type == "DELETED":
            self._forget(place, record, previous)
            return
        self._places[record.uid] = place
        old_owners = previous.owners if previous is not None else ()
        if record.owners != old_owners:
            self._relink(place, old_owners, record.owners)
            self.objects.queue.add(self._check_dependent, place)
        if record.deleting and (FOREGROUND in record.finalizers or ORPHAN in record.finalizers):
            self.objects.queue.add(self._check_owner, place)

    def _forget(self, place: Place, record: Record, previous: Record | None) -> None:
        self._places.pop(record.uid, None)
        self._relink(place, previous.owners if previous is not None else record.owners, ())
        for dependent in self._dependents.get(record.uid, ()):
            self.objects.queue.add(self._check_dependent, dependent)
        for owner in record.owners:
            if (owner_place := self._places.get(owner)) is not None:
                self.objects.queue.add(self._check_owner, owner_place)

    def _relink(self, place: Place, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        for owner in before:
            dependents = self._dependents.get(owner, {})
            dependents.pop(place, None)
            if not dependents:
                self._dependents.pop(owner, None)
        for owner in after:
            self._dependents.setdefault(owner, {})[place] = None

    def _find(self, place: Place) -> tuple[Kind, Record] | None:
        bucket, key = place
        kind = self.objects.find_kind(bucket)
        record = self.objects.store.bucket(bucket).records.get(key) if kind is not None else None
        return (kind, record) if kind is not None and record is not None else None

    def _check_dependent(self, place: Place) -> None:
        """Delete the object if all its owners are gone; otherwise, drop the references to gone owners."""
        found = self._find(place)
        if found is None or not found[1].owners:
            return
        kind, record = found
        absent = {owner for owner in record.owners if not self._is_present(owner, record.key[0])}
        if len(absent) == len(set(record.owners)):
            if not record.deleting:
                self.objects.writer.delete(kind, record.key)
        elif absent:
            self._drop_references(kind, record.key, absent)

    def _is_present(self, uid: str, namespace: str) -> bool:
        """Whether the owner exists; it must be cluster-wide or in the same namespace."""
        place = self._places.get(uid)
        return place is not None and place[1][0] in ("", namespace)

    def _drop_references(self, kind: Kind, key: Key, owners: set[str]) -> None:
        def transform(old: Obj) -> Obj:
            kept = [ref for ref in old["metadata"].get("ownerReferences") or () if ref["uid"] not in owners]
            return {**old, "metadata": {**old["metadata"], "ownerReferences": kept}}

        self.objects.writer.update(kind, key, transform)

    def _check_owner(self, place: Place) -> None:
        """Delete or orphan the dependents of an owner that is being deleted, and release it afterwards."""
        found = self._find(place)
        if found is None or not found[1].deleting:
            return
        kind, record = found
        dependents = list(self._dependents.get(record.uid, ()))
        if ORPHAN in record.finalizers:
            for dependent in dependents:
                if (child := self._find(dependent)) is not None:
                    self._drop_references(child[0], child[1].key, {record.uid})
            self._release(kind, record.key, ORPHAN)
        elif FOREGROUND in record.finalizers:
            blockers = [dependent for dependent in dependents if self._delete_blocker(dependent, record.uid)]
            if not blockers:
                self._release(kind, record.key, FOREGROUND)

    def _delete_blocker(self, place: Place, owner: str) -> bool:
        """Delete the dependent; return whether the owner must wait for it."""
        found = self._find(place)
        if found is None:
            return False
        kind, record = found
        if not record.deleting:
            others = {uid for uid in record.owners if self._is_present(uid, place[1][0]) and not self._is_going(uid)}
            if others:
                self._drop_references(kind, record.key, set(record.owners) - others)
                return False
            if any(self._is_going_at(dependent) for dependent in self._dependents.get(record.uid, ())):
                self._unblock(kind, record.key)
            if self.objects.writer.delete(kind, record.key, DeleteOptions(propagationPolicy="Foreground"))[1]:
                return False
            found = self._find(place)
        if found is None or not _is_blocking(*found, owner):
            return False
        kind, record = found
        if self._is_going(record.uid) and self._waits_for(record.uid, owner):
            self._unblock(kind, record.key)
            return False
        return True

    def _waits_for(self, awaiting: str, awaited: str) -> bool:
        """Whether an owner waits for the deletion of an object, directly or through others."""
        seen, pending = {awaited}, [awaited]
        while pending:
            place = self._places.get(pending.pop())
            found = self._find(place) if place is not None else None
            if found is None:
                continue
            for owner in found[1].owners:
                if self._is_going(owner) and _is_blocking(*found, owner):
                    if owner == awaiting:
                        return True
                    if owner not in seen:
                        seen.add(owner)
                        pending.append(owner)
        return False

    def _is_going(self, uid: str) -> bool:
        """Whether the object waits for its dependents to be deleted."""
        place = self._places.get(uid)
        return place is not None and self._is_going_at(place)

    def _is_going_at(self, place: Place) -> bool:
        found = self._find(place)
        return found is not None and found[1].deleting and FOREGROUND in found[1].finalizers

    def _unblock(self, kind: Kind, key: Key) -> None:
        """Unblock the owners of the object, which owns one itself: they would wait for each other.

        The real collector looks for circles when it begins to delete a dependent; if a whole circle is being deleted by
        then, a race decides, and the circle can remain forever. Here, no circle remains: they are found later, too.
        """

        def transform(old: Obj) -> Obj:
            references = [
                {**ref, "blockOwnerDeletion": False} if ref.get("blockOwnerDeletion") else ref
                for ref in old["metadata"].get("ownerReferences") or ()
            ]
            return {**old, "metadata": {**old["metadata"], "ownerReferences": references}}

        self.objects.writer.update(kind, key, transform)

    def _release(self, kind: Kind, key: Key, finalizer: str) -> None:
        self.objects.writer.update(kind, key, lambda old: without_finalizer(old, finalizer))


def _is_blocking(kind: Kind, record: Record, owner: str) -> bool:
    """Whether this dependent blocks the deletion of the owner in the foreground."""
    references = objects.open_record(kind, record)["metadata"].get("ownerReferences") or ()
    return any(ref["uid"] == owner and ref.get("blockOwnerDeletion") for ref in references)
