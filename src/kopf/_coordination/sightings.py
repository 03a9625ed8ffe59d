"""
Sightings: what a replica has seen of the Leases, and what this means. No I/O, no clocks: the times are passed.

Clocks of others are not trusted: a Lease has expired if it was not seen to change for its duration. What is seen can be
old, as watches lag behind. So what follows from an expiry is only tried, by writes that fail if the Lease has changed.
What is known for sure does not become wrong with time: a replica that has lost its Lease never gets it back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kopf._coordination.leases import LEADER, Lease
from kopf._values.resource_versions import is_newer


@dataclasses.dataclass(frozen=True)
class Sighting:
    """A Lease, and since when it is known in this version."""

    lease: Lease
    since: float
    is_renewed: bool = False
    """Whether the holder has renewed it before our eyes, so it is, or was, somebody else who is alive."""

    @property
    def expiry(self) -> float:
        """When it can be taken away from its holder, unless it changes."""
        return self.since + self.lease.duration


class Sightings:
    """All Leases of the group. The times are in seconds, by a clock of our own that never stops."""

    def __init__(self, group: str, duration: float) -> None:
        self._group = group
        self._known: dict[str, Sighting] = {}
        self._vanished: dict[str, float] = {}
        self._born = (0, 0.0)
        self._longest = duration

    def get(self, name: str) -> Sighting | None:
        """Get the Lease as it was seen last."""
        return self._known.get(name)

    @property
    def names(self) -> Collection[str]:
        """The names of all Leases."""
        return self._known.keys()

    @property
    def head(self) -> Sighting | None:
        """The Lease of the coordinator, or of the leader."""
        return self._known.get(self._group)

    @property
    def replicas(self) -> Mapping[str, Sighting]:
        """The Leases of the replicas by their holders; those of strangers are not among them."""
        sightings = [item for name, item in self._known.items() if name != self._group and item.lease.is_ours]
        return {item.lease.holder: item for item in sightings if item.lease.holder}

    @property
    def free_names(self) -> Iterable[str]:
        """The Leases of replicas that nobody holds."""
        return [
            name
            for name, item in self._known.items()
            if name != self._group and item.lease.is_ours and not item.lease.holder
        ]

    def observe(self, lease: Lease, now: float) -> bool:
        """Take a look at the Lease. Tell if it is something new."""
        known = self._known.get(lease.name)
        if known is not None and not is_newer(lease.version, known.lease.version):
            return False
        is_renewed = known is not None and known.lease.holder == lease.holder
        self._known[lease.name] = Sighting(lease, now, is_renewed)
        self._longest = max(self._longest, lease.duration)
        if known is not None and known.lease.holder != lease.holder:
            self._lose(known.lease, now)
        if lease.holder:
            self._vanished.pop(lease.holder, None)
        if lease.name == self._group and lease.assignment is not None and lease.assignment.born != self._born[0]:
            self._born = (lease.assignment.born, now)
        return True

    def observe_absence(self, name: str, version: str, now: float) -> None:
        """There is no such Lease anymore, if it has not changed since the version, which is the last known one."""
        known = self._known.get(name)
        if known is not None and not is_newer(known.lease.version, version):
            del self._known[name]
            self._lose(known.lease, now)

    def _lose(self, lease: Lease, now: float) -> None:
        """
        The holder has lost its Lease; but a coordinator lives by another one.

        This matters only if that other one was never seen: it would be waited for from too early on.
        """
        if lease.name != self._group or lease.report.mode == LEADER:
            self._vanished[lease.holder] = now

    def expect(self, owners: Iterable[str], now: float) -> None:
        """Begin to wait for the end of those that are not there, as of a complete look at all Leases."""
        for owner in owners:
            if owner not in self.replicas:
                self._vanished.setdefault(owner, now)

    def is_gone(self, owner: str, now: float) -> bool:
        """Tell if the replica does not act for sure: somebody says so, or it has no Lease for long enough."""
        if owner in self.replicas:
            return False
        if any(item.lease.report.former == owner for item in self._known.values()):
            return True
        return now >= self._vanished.get(owner, now) + self._longest

    def is_settled(self, born: int, now: float) -> bool:
        """Tell if nobody acts by an assignment before the one that was made anew."""
        is_old = self._born[0] == born and now >= self._born[1] + self._longest
        return is_old and all(item.lease.report.seen >= born for item in self.replicas.values())
