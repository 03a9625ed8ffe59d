"""The state of one replica of an operator, for display."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._values.records import FrozenRecord, field
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots


class ReplicaState(FrozenRecord, frozen=True, kw_only=True):
    """The current state of one replica: its role, and its slots."""

    mode: str
    """``leader`` or ``shards``."""
    name: str
    """The Lease of all replicas."""
    identity: str
    """The name of this replica."""
    is_leading: bool = False
    """Whether it holds this Lease: it is the working replica, or the replica that assigns the slots."""
    is_fenced: bool = False
    """Whether it could not renew its own Lease in time, and has stopped all work."""
    held: Slots = frozenset()
    """The slots of the objects that it handles."""
    wanted: Slots = frozenset()
    """The slots that it takes as soon as the others have handed them over."""
    draining: Slots = frozenset()
    """The slots that it still has to hand over: it starts no new work for them."""
    others: Mapping[str, Slots] = field(default_factory=dict)
    """The slots of the other replicas, by their identities, as far as their Leases are held."""

    @property
    def role(self) -> str:
        """One word: ``leader`` or ``standby``; ``coordinator`` or ``member`` of shards; or ``fenced``."""
        if self.is_fenced:
            return "fenced"
        if self.mode == "leader":
            return "leader" if self.is_leading else "standby"
        return "coordinator" if self.is_leading else "member"

    def describe(self) -> str:
        """Describe it for humans, in a few words."""
        if self.mode == "leader" or self.is_fenced:
            return f"{self.role} {self.identity} of {self.name!r}"
        slots = f"{len(self.held)} of {SLOT_COUNT} slots" + (f" ({describe_slots(self.held)})" if self.held else "")
        return f"{self.role} {self.identity} of {self.name!r} with {slots}"

    def as_json(self) -> dict[str, Any]:
        """Describe it for programs."""
        slots = {"held": self.held, "wanted": self.wanted, "draining": self.draining}
        known = {key: describe_slots(value) for key, value in slots.items() if value and self.mode == "shards"}
        return {"mode": self.mode, "name": self.name, "identity": self.identity, "role": self.role, **known}
