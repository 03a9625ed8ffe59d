"""
Sharing: which objects this replica of the operator handles, and which ones the other replicas do.

A standby replica has no objects. A replica handles new objects as after a restart of the operator; it forgets lost
objects as if it had stopped. In between, while it leaves objects, it begins nothing for them, and finishes its current
work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from kopf._client.fencing import Fence
from kopf._handlers.current_handler import current_cause
from kopf._values.slots import ALL_SLOTS, Slots, bridge_gaps, get_slot, make_shard_selector

_MAX_RANGES = 32
"""The maximum of ranges in a selector of shards: it is a part of the URL, and servers limit those."""


class Share:
    """The objects that this replica handles: by default, all of them forever; with a fence, none at first."""

    def __init__(self, fence: Fence | None = None) -> None:
        self.fence = fence
        """When shut, it stops all work on objects; ``None`` if the operator has no replicas."""
        self.slots: Slots = ALL_SLOTS if fence is None else frozenset()
        """The slots whose objects this replica handles or is leaving."""
        self.leaving: Slots = frozenset()
        """The slots that it is leaving."""
        self.get_token: Callable[[int], int] = lambda slot: 0
        """Returns the fencing token of a slot."""

    def make_selector(self) -> str:
        """Make the selector of our objects, and of as few others as possible; empty if it would not help."""
        if len(self.slots) in (0, len(ALL_SLOTS)):
            return ""
        return make_shard_selector(bridge_gaps(self.slots, _MAX_RANGES))

    @property
    def is_empty(self) -> bool:
        """Whether there are no objects to handle."""
        return not self.slots

    def is_foreign(self, key: str) -> bool:
        """Tell if this replica does not handle the object."""
        return len(self.slots) < len(ALL_SLOTS) and get_slot(key) not in self.slots

    def is_being_left(self, key: str) -> bool:
        """Tell if nothing may begin for the object."""
        return get_slot(key) in self.leaving


current_share: ContextVar[Share] = ContextVar("current_share")
"""The share of the operator that executes the current handler."""


def fencing_token() -> int:
    """
    Return the fencing token of the handled object: a number that grows whenever the object moves to another replica.

    Systems outside of Kubernetes can refuse writes with a lower token than the highest one they have seen. Then a
    frozen replica cannot overwrite the writes of its successor. The token is 0 if the operator has no replicas.

    Raises :class:`RuntimeError` outside of the handlers of objects.
    """
    cause, share = current_cause.get(None), current_share.get(None)
    if cause is None:
        raise RuntimeError("kopf.fencing_token() works only in handlers of objects.")
    return 0 if share is None else share.get_token(get_slot(cause.body.object.head.key))
