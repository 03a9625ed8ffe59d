"""
How control loops read and write objects: by the bucket and the key, with what may be gone seen as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kopf_cluster import codec, statuses
from kopf_cluster.control.work import WorkQueue
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.store.storage import Key, Record, Store
from kopf_cluster.writes.write_options import DeleteOptions
from kopf_cluster.writes.writing import Writer


class Objects:
    """The objects of a cluster for its control loops."""

    def __init__(self, store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
        self.queue = queue
        self._store = store
        self._registry = registry
        self._writer = writer

    def kind(self, bucket: str) -> Kind:
        plural, _, group = bucket.partition(".")
        kind = self._registry.find_any_version(group, plural)
        if kind is None:
            raise LookupError(f"the registry has no {bucket}")
        return kind

    def get(self, bucket: str, key: Key) -> Obj | None:
        record = self._store.bucket(bucket).records.get(key)
        return None if record is None else objects.open_record(self.kind(bucket), record)

    def has(self, bucket: str, key: Key) -> bool:
        return key in self._store.bucket(bucket).records

    def records(self, bucket: str, namespace: str | None = None) -> Iterator[Record]:
        return self._store.bucket(bucket).select(namespace)

    def select(self, bucket: str, namespace: str | None = None) -> Iterator[Obj]:
        for record in list(self.records(bucket, namespace)):
            yield objects.open_record(self.kind(bucket), record)

    def owned(self, bucket: str, owner: Obj) -> list[Obj]:
        """Give the objects that are controlled by the owner, in the order of names."""
        uid, kind = owner["metadata"]["uid"], self.kind(bucket)
        found = [
            objects.open_record(kind, record)
            for record in self.records(bucket, namespace_of(owner))
            if uid in record.owners
        ]
        return [obj for obj in found if (controller_of(obj) or {}).get("uid") == uid]

    def create(self, bucket: str, namespace: str, body: Mapping[str, Any]) -> Obj | None:
        """Create the object; give nothing if there is one already, or the namespace accepts no more."""
        kind = self.kind(bucket)
        clean: Obj = codec.decode(codec.encode(body))  # never shared with templates
        try:
            return objects.open_record(kind, self._writer.create(kind, namespace, clean))
        except statuses.APIStatus as error:
            if error.code in (403, 404, 409):
                return None
            raise

    def update(self, bucket: str, key: Key, transform: Callable[[Obj], Obj], *, subresource: str = "") -> None:
        """Replace the object by what the function makes of it, if it is still there."""
        if self.has(bucket, key):
            self._writer.update(self.kind(bucket), key, transform, subresource=subresource)

    def set_status(self, bucket: str, key: Key, status: Obj) -> None:
        """Replace the status as a whole; fields that are none are left out."""
        clean = {field: value for field, value in status.items() if value is not None}
        self.update(bucket, key, lambda old: {**old, "status": clean}, subresource="status")

    def delete(self, bucket: str, key: Key, grace_period: int | None = None) -> None:
        """Delete the object if it is still there, and not asked to go already; or change how long it has for that."""
        record = self._store.bucket(bucket).records.get(key)
        if record is not None and (grace_period is not None or not record.deleting):
            self._writer.delete(self.kind(bucket), key, DeleteOptions(gracePeriodSeconds=grace_period))


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "")


def key_of(obj: Obj) -> Key:
    return objects.key_of(obj["metadata"])


def controller_of(obj: Obj) -> Obj | None:
    """Give the reference to the owner that manages the object, if there is one."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def reference_to(owner: Obj) -> Obj:
    """Make the reference by which the owner manages an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_condition(conditions: list[Obj], kind: str, status: str, reason: str, message: str, now: str) -> Obj:
    """Make a condition; the time of the transition is kept as long as the status is the same."""
    old = next((item for item in conditions if item["type"] == kind), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
