"""
Ownership: when an object changes, its owners are handled, if any of their handlers react to owned objects.

The owners of an object are in its ``metadata.ownerReferences``: they are in the same namespace, or cluster-scoped; see
"Owners and Dependents" of the Kubernetes documentation. Its owners before the change are handled, too.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controller_registry import Controllers
from kopf._handlers.registry import Owners
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.records import FrozenRecord
from kopf._values.references import list_owner_uids
from kopf._values.resources import is_newer

_MAX_GONE = 100


class _Child(FrozenRecord, frozen=True, gc=False):
    """An owned object; as small as possible, because there can be many."""

    owners: tuple[str, ...]
    version: str
    raw: bytes


class Ownership:
    """
    The objects of one resource whose owners react to their changes.

    Their latest states are kept serialised, for reconcilers.
    """

    def __init__(self, controllers: Controllers, owners: Owners, *, comparable_versions: bool) -> None:
        self.owners = owners
        self._controllers = controllers
        self._comparable_versions = comparable_versions
        self._kinds = {(resource.group, resource.kind) for resource in owners}
        self._children: dict[str, _Child] = {}
        self._names: dict[str | None, dict[str, str]] = {}
        self._owned: dict[str, list[str]] = {}
        self._gone: deque[str] = deque(maxlen=_MAX_GONE)
        """The objects deleted lately: the responses to earlier writes can come after the deletion."""

    def accept(self, event: WatchEvent) -> None:
        """Accept an event of an object, and wake its owners."""
        obj = event.object
        known = self._children.get(obj.head.key)
        is_gone = event.type == "DELETED"
        if known is not None and not is_gone and self._is_known(known, obj):
            return  # the owner itself has written it, or it is older
        before = () if known is None else known.owners
        now = () if is_gone else list_owner_uids(obj, self._kinds, unreadable=before)
        if now:
            self._keep(obj, now)
        elif known is not None:
            self._forget(obj.head)
        if is_gone and known is not None:
            self._gone.append(obj.head.key)
        self._tell(dict.fromkeys((*before, *now)))

    def _is_known(self, known: _Child, obj: KubeObject) -> bool:
        version = obj.head.resourceVersion
        return known.version == version or (self._comparable_versions and is_newer(known.version, version))

    def _tell(self, owners: Iterable[str]) -> None:
        for uid in owners:
            for resource, handlers in self.owners.items():
                self._controllers.enqueue(resource, uid, handlers)

    def find(self, namespace: str | None, name: str) -> KubeObject | None:
        """Return the latest state of an owned object, if it is known."""
        uid = self._names.get(namespace, {}).get(name)
        return None if uid is None else self.get(uid)

    def get(self, uid: str) -> KubeObject | None:
        """Return the latest state of an owned object by its UID, if it is known."""
        child = self._children.get(uid)
        return None if child is None else KubeObject.salvage(child.raw)

    def list_of(self, owner: str) -> Collection[str]:
        """List the UIDs of all objects with this owner."""
        return tuple(self._owned.get(owner, ()))

    def note(self, obj: KubeObject, author: str | None) -> None:
        """Accept the state of an object that its owner has just written, before it comes by the stream."""
        known = self._children.get(obj.head.key)
        if self._is_known(known, obj) if known is not None else obj.head.key in self._gone:
            return
        if owners := list_owner_uids(obj, self._kinds):
            self._keep(obj, owners)
            self._tell(uid for uid in owners if uid != author)

    def _keep(self, obj: KubeObject, owners: tuple[str, ...]) -> None:
        head, known = obj.head, self._children.get(obj.head.key)
        owners = tuple(map(sys.intern, owners)) if known is None or known.owners != owners else known.owners
        if known is None or known.owners is not owners:
            self._unlink(head.key, () if known is None else known.owners)
            for uid in owners:
                self._owned.setdefault(uid, []).append(head.key)
        self._children[head.key] = _Child(owners, head.resourceVersion, obj.make_compact())
        if known is None:
            self._names.setdefault(head.namespace, {})[head.name] = head.key

    def _forget(self, head: ObjectMeta) -> None:
        self._unlink(head.key, self._children.pop(head.key).owners)
        names = self._names[head.namespace]
        if names.get(head.name) == head.key:  # otherwise, there is another object of that name
            del names[head.name]

    def _unlink(self, key: str, owners: Iterable[str]) -> None:
        for uid in owners:
            self._owned[uid].remove(key)
            if not self._owned[uid]:
                del self._owned[uid]
