"""
Sharing: which of the objects are handled by this operator, and which by its other replicas.

A replica that waits for its turn has no objects. When it gets some, they are handled as after a restart of the
operator; when it loses them, everything is forgotten of them, as if the operator was stopped. In between, while they
are being left, nothing begins for them, and what has begun is brought to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from kopf._client.fencing import Fence
from kopf._handlers.current_handler import current_cause
from kopf._values.slots import ALL_SLOTS, Slots, bridge_gaps, get_slot, make_shard_selector

_MAX_RANGES = 32
"""How many ranges are in a selector of shards: it is a part of the URL, which servers limit."""


class Share:
    """What is handled here now: by default, everything and forever; with a fence, nothing in the beginning."""

    def __init__(self, fence: Fence | None = None) -> None:
        self.fence = fence
        """Behind it, nothing is done for the objects; there is none if the operator has no replicas."""
        self.slots: Slots = ALL_SLOTS if fence is None else frozenset()
        """Whose objects are handled here, or are being left."""
        self.leaving: Slots = frozenset()
        """Those that are being left."""
        self.is_selected_by_server = fence is not None
        """Whether the server is asked for our objects only; not anymore if it has ignored that."""
        self.get_token: Callable[[int], int] = _get_no_token
        """Gives the fencing token of a slot."""

    def make_selector(self) -> str:
        """Select our objects on the server, and as few of others as possible; empty if that is for nothing."""
        if not self.is_selected_by_server or len(self.slots) in (0, len(ALL_SLOTS)):
            return ""
        return make_shard_selector(bridge_gaps(self.slots, _MAX_RANGES))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be handled."""
        return not self.slots

    def is_foreign(self, key: str) -> bool:
        """Tell if the object is not handled here."""
        return len(self.slots) < len(ALL_SLOTS) and get_slot(key) not in self.slots

    def is_being_left(self, key: str) -> bool:
        """Tell if nothing is to begin for the object."""
        return get_slot(key) in self.leaving


def _get_no_token(slot: int) -> int:
    return 0


current_share: ContextVar[Share] = ContextVar("current_share")
"""The share of the operator whose handlers are executed."""


def fencing_token() -> int:
    """
    Get the fencing token of the handled object: a number that grows whenever the object goes to another replica.

    Systems outside of Kubernetes can refuse writes with a lower token than the highest one that they have seen: then,
    a replica that was frozen cannot overwrite what its successor has written. It is 0 if the operator has no replicas.
    Raises :class:`RuntimeError` outside of the handlers of objects.
    """
    cause, share = current_cause.get(None), current_share.get(None)
    if cause is None:
        raise RuntimeError("kopf.fencing_token() is only for the handlers of objects.")
    return 0 if share is None else share.get_token(get_slot(cause.body.object.head.key))
