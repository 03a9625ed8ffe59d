"""
Ownership: when an object has changed, those that own it are handled, if any of their handlers asks for that.

Who owns an object, is in its ``metadata.ownerReferences``: they are in the same namespace, or in none; see "Owners and
Dependents" of the Kubernetes documentation. Who owned it before the change, has to know, too.
"""

from __future__ import annotations

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.controllers import Controllers
from kopf._handlers.registry import Owners
from kopf._values.references import list_owner_uids


class Ownership:
    """Who owns the objects of one resource. Only the identities of the owners are remembered."""

    def __init__(self, controllers: Controllers, owners: Owners) -> None:
        self._controllers = controllers
        self._owners = owners
        self._known: dict[str, tuple[str, ...]] = {}

    def accept(self, event: WatchEvent) -> None:
        """Take in what has happened to an object, and tell its owners."""
        key = event.object.head.key
        before = self._known.get(key, ())
        now = () if event.type == "DELETED" else list_owner_uids(event.object, unreadable=before)
        if now:
            self._known[key] = now
        else:
            self._known.pop(key, None)
        for uid in dict.fromkeys((*before, *now)):
            for resource, handlers in self._owners.items():
                self._controllers.enqueue(resource, uid, handlers)
