"""What one replica is among the replicas of its operator, for those who look at it."""

from __future__ import annotations

from typing import Any

from kopf._values.records import FrozenRecord
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots


class ReplicaState(FrozenRecord, frozen=True, kw_only=True):
    """What one replica is at the moment: its role, and its slots."""

    mode: str
    """``leader`` or ``shards``."""
    name: str
    """The Lease of all replicas."""
    identity: str
    """How this replica is called."""
    is_leading: bool = False
    """Whether it holds that Lease: it is the one who works, or who assigns the slots."""
    is_fenced: bool = False
    """Whether its own Lease could not be renewed in time, and so everything is stopped."""
    held: Slots = frozenset()
    """The objects that it handles."""
    wanted: Slots = frozenset()
    """Those that it is to handle when the others have handed them over."""
    draining: Slots = frozenset()
    """Those that it still has to hand over: nothing is started for them anymore."""

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
