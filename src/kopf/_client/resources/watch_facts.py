"""The facts of watching and patching: what has become of streams, and of the objects."""

from __future__ import annotations

from typing import Any

from kopf._client.resources.targets import Target
from kopf._facts.bus import Fact
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.resources import Resource


class WatchInterrupted(Fact, frozen=True, eq=False):
    """A listing or a stream has ended, and will go on."""

    target: Target
    error: Exception | None
    """Why; ``None`` if the server has ended it in order, which it does now and then."""
    delay: float
    """In how many seconds it goes on."""
    is_listing: bool
    is_quiet: bool = False
    """Whether nothing has come for long: it is no trouble if nothing has happened, and there are no bookmarks."""


class ObjectPatched(Fact, frozen=True, eq=False):
    """One request of a patch is done."""

    is_frequent = True
    resource: Resource
    before: KubeObject
    after: KubeObject
    subresource: str | None
    changes: Any
    """The merge-patch or the JSON-patch that was sent."""
    at: float

    @property
    def is_noop(self) -> bool:
        """Whether nothing has changed by that."""
        return is_same(self.before.head, self.after.head)


def is_same(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Tell if a patch has changed nothing. The one that ends an object is answered with the version before it."""
    return before.resourceVersion == after.resourceVersion and (before.finalizers or []) == (after.finalizers or [])
