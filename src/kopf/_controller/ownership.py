"""
Ownership: when an object has changed, those that own it are handled, if any of their handlers asks for that.

Who owns an object, is in its ``metadata.ownerReferences``: they are in the same namespace, or in none; see "Owners and
Dependents" of the Kubernetes documentation. Who owned it before the change, has to know, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controllers import Controllers
from kopf._handlers.registry import Owners
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.references import list_owner_uids
from kopf._values.resource_versions import is_newer


class _Child(NamedTuple):
    owners: tuple[str, ...]
    obj: KubeObject


class Ownership:
    """
    The objects of one resource that are owned by those who have to know of their changes.

    Their latest states are kept as they have arrived, for those who bring them in line with what they should be.
    """

    def __init__(self, controllers: Controllers, owners: Owners, *, comparable_versions: bool) -> None:
        self.owners = owners
        self._controllers = controllers
        self._comparable_versions = comparable_versions
        self._kinds = {(resource.group, resource.kind) for resource in owners}
        self._children: dict[str, _Child] = {}
        self._keys: dict[tuple[str | None, str], str] = {}
        self._owned: dict[str, dict[str, None]] = {}

    def accept(self, event: WatchEvent) -> None:
        """Take in what has happened to an object, and tell its owners."""
        obj = event.object
        known = self._children.get(obj.head.key)
        is_gone = event.type == "DELETED"
        if known is not None and not is_gone and self._is_known(known.obj.head.resourceVersion, obj):
            return  # it was written by the owner itself, or before that
        before = () if known is None else known.owners
        now = () if is_gone else list_owner_uids(obj, self._kinds, unreadable=before)
        if now:
            self._keep(obj, now)
        elif known is not None:
            self._forget(obj.head)
        self._tell(dict.fromkeys((*before, *now)))

    def _is_known(self, version: str, obj: KubeObject) -> bool:
        other = obj.head.resourceVersion
        return version == other or (self._comparable_versions and is_newer(version, other))

    def _tell(self, owners: Iterable[str]) -> None:
        for uid in owners:
            for resource, handlers in self.owners.items():
                self._controllers.enqueue(resource, uid, handlers)

    def find(self, namespace: str | None, name: str) -> KubeObject | None:
        """Get the latest state of an object, if it is owned by anybody who matters here."""
        key = self._keys.get((namespace, name))
        return None if key is None else self._children[key].obj

    def list_of(self, owner: str) -> list[KubeObject]:
        """Get the latest states of all objects that are owned by this one."""
        return [self._children[key].obj for key in self._owned.get(owner, ())]

    def note(self, obj: KubeObject, author: str | None) -> None:
        """Take in the state of an object that was just written for this owner, before it comes by the stream."""
        known = self._children.get(obj.head.key)
        if known is not None and self._is_known(known.obj.head.resourceVersion, obj):
            return
        if owners := list_owner_uids(obj, self._kinds):
            self._keep(obj, owners)
            self._tell(uid for uid in owners if uid != author)

    def _keep(self, obj: KubeObject, owners: tuple[str, ...]) -> None:
        obj.forget_values()
        if (known := self._children.get(obj.head.key)) is None or known.owners != owners:
            self._unlink(obj.head.key, () if known is None else known.owners)
            for uid in owners:
                self._owned.setdefault(uid, {})[obj.head.key] = None
        self._children[obj.head.key] = _Child(owners, obj)
        self._keys[obj.head.namespace, obj.head.name] = obj.head.key

    def _forget(self, head: ObjectMeta) -> None:
        self._unlink(head.key, self._children.pop(head.key).owners)
        if self._keys.get((head.namespace, head.name)) == head.key:  # otherwise, there is another one of that name
            del self._keys[head.namespace, head.name]

    def _unlink(self, key: str, owners: Iterable[str]) -> None:
        for uid in owners:
            del self._owned[uid][key]
            if not self._owned[uid]:
                del self._owned[uid]
