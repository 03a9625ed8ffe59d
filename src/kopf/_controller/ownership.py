"""
Ownership: when an object has changed, those that own it are handled, if any of their handlers asks for that.

Who owns an object, is in its ``metadata.ownerReferences``: they are in the same namespace, or in none; see "Owners and
Dependents" of the Kubernetes documentation. Who owned it before the change, has to know, too.
"""

from __future__ import annotations

from typing import NamedTuple

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controllers import Controllers
from kopf._handlers.registry import Owners
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.references import list_owner_uids


class _Child(NamedTuple):
    owners: tuple[str, ...]
    obj: KubeObject


class Ownership:
    """
    The objects of one resource that are owned by those who have to know of their changes.

    Their latest states are kept as they have arrived, for those who bring them in line with what they should be.
    """

    def __init__(self, controllers: Controllers, owners: Owners) -> None:
        self._controllers = controllers
        self._owners = owners
        self._kinds = {(resource.group, resource.kind) for resource in owners}
        self._children: dict[str, _Child] = {}
        self._keys: dict[tuple[str | None, str], str] = {}

    def accept(self, event: WatchEvent) -> None:
        """Take in what has happened to an object, and tell its owners."""
        obj = event.object
        known = self._children.get(obj.head.key)
        is_gone = event.type == "DELETED"
        if known is not None and not is_gone and known.obj.head.resourceVersion == obj.head.resourceVersion:
            return  # it was written by the owner itself
        before = () if known is None else known.owners
        now = () if is_gone else list_owner_uids(obj, self._kinds, unreadable=before)
        if now:
            self._keep(obj, now)
        elif known is not None:
            self._forget(obj.head)
        for uid in dict.fromkeys((*before, *now)):
            for resource, handlers in self._owners.items():
                self._controllers.enqueue(resource, uid, handlers)

    def find(self, namespace: str | None, name: str) -> KubeObject | None:
        """Get the latest state of an object, if it is owned by anybody who matters here."""
        key = self._keys.get((namespace, name))
        return None if key is None else self._children[key].obj

    def note(self, obj: KubeObject) -> None:
        """Take in the state of an object that was just written, before it comes by the stream."""
        if owners := list_owner_uids(obj, self._kinds):
            self._keep(obj, owners)

    def _keep(self, obj: KubeObject, owners: tuple[str, ...]) -> None:
        obj.forget_values()
        self._children[obj.head.key] = _Child(owners, obj)
        self._keys[obj.head.namespace, obj.head.name] = obj.head.key

    def _forget(self, head: ObjectMeta) -> None:
        del self._children[head.key]
        if self._keys.get((head.namespace, head.name)) == head.key:  # otherwise, there is another one of that name
            del self._keys[head.namespace, head.name]
