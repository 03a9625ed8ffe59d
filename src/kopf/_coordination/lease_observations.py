"""
The Leases as one replica has observed them, and what follows. No I/O and no clocks: callers pass the times.

A replica does not trust the clocks of others: a Lease expires when this replica has seen no change for the duration of
the Lease. An observation can be old, because watches lag behind. So an expiry only leads to attempts: writes that fail
if the Lease has changed. A loss is certain and final: a replica that has lost its Lease never gets it back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from kopf._coordination.leases import LEADER, Lease
from kopf._values.resources import is_newer
from kopf._values.slots import Slots


@dataclasses.dataclass(frozen=True)
class ObservedLease:
    """A Lease, and the time of the first look at this version."""

    lease: Lease
    since: float
    is_renewed: bool = False
    """Whether this replica has observed a renewal: the holder is, or was, another live process."""

    @property
    def expiry(self) -> float:
        """When another replica can take the Lease away from its holder, unless it changes."""
        return self.since + self.lease.duration


class SlotGaps:
    """The times when nobody holds the slots."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def note(self, known: ObservedLease, lease: Lease, now: float) -> None:
        """Note the slots that the Lease held before. A holder that did not renew it in time was gone since then."""
        kept = lease.report.held if lease.holder == known.lease.holder else frozenset()
        since = now if now < known.expiry else known.since
        self._since.update(dict.fromkeys(known.lease.report.held - kept, since))

    def end(self, slots: Slots, now: float) -> list[float]:
        """Return how long these slots had no holder until now, in seconds; skip slots that had none before."""
        return [now - self._since.pop(slot) for slot in slots if slot in self._since]


class LeaseObservations:
    """All Leases of the group. Times are in seconds, by a local clock that never stops."""

    def __init__(self, group: str, duration: float) -> None:
        self._group = group
        self.known: dict[str, ObservedLease] = {}
        """The latest observations of all Leases, by their names."""
        self._vanished: dict[str, float] = {}
        self._born = (0, 0.0)
        self._longest = duration
        self.gaps = SlotGaps()

    @property
    def head(self) -> ObservedLease | None:
        """The Lease of the coordinator, or of the leader."""
        return self.known.get(self._group)

    @property
    def replicas(self) -> Mapping[str, ObservedLease]:
        """The Leases of the replicas by their holders, without the Leases of strangers."""
        return {item.lease.holder: item for item in self.own if item.lease.holder}

    @property
    def own(self) -> Iterable[ObservedLease]:
        """The Leases of single replicas, held or free, without the Leases of strangers."""
        return [item for name, item in self.known.items() if name != self._group and item.lease.is_ours]

    def observe(self, lease: Lease, now: float) -> bool:
        """Accept an observed Lease. Return whether it is new."""
        known = self.known.get(lease.name)
        if known is not None and not is_newer(lease.version, known.lease.version):
            return False
        is_renewed = known is not None and known.lease.holder == lease.holder
        self.known[lease.name] = ObservedLease(lease, now, is_renewed)
        self._longest = max(self._longest, lease.duration)
        if known is not None:
            self.gaps.note(known, lease, now)
        if known is not None and known.lease.holder != lease.holder:
            self._lose(known.lease, now)
        if lease.holder:
            self._vanished.pop(lease.holder, None)
        if lease.name == self._group and lease.assignment is not None and lease.assignment.born != self._born[0]:
            self._born = (lease.assignment.born, now)
        return True

    def observe_absence(self, name: str, version: str, now: float) -> None:
        """Accept that the Lease is gone, unless it has changed since the version, the last known one."""
        known = self.known.get(name)
        if known is not None and not is_newer(known.lease.version, version):
            del self.known[name]
            self.gaps.note(known, Lease(name=name), now)
            self._lose(known.lease, now)

    def _lose(self, lease: Lease, now: float) -> None:
        """
        Note that the holder has lost its Lease; but a coordinator lives by another one.

        This matters only if this replica never saw that other Lease: the wait for its end would begin too early.
        """
        if lease.name != self._group or lease.report.mode == LEADER:
            self._vanished[lease.holder] = now

    def expect(self, owners: Iterable[str], now: float) -> None:
        """Begin to wait for the end of the owners without Leases, after a complete look at all Leases."""
        for owner in owners:
            if owner not in self.replicas:
                self._vanished.setdefault(owner, now)

    def is_gone(self, owner: str, now: float) -> bool:
        """Tell if the replica certainly does not act: a Lease says so, or it has had no Lease for long enough."""
        if owner in self.replicas:
            return False
        if any(item.lease.report.former == owner for item in self.known.values()):
            return True
        return now >= self._vanished.get(owner, now) + self._longest

    def is_settled(self, born: int, now: float) -> bool:
        """Tell if no replica acts by an assignment older than the one that was made anew."""
        is_old = self._born[0] == born and now >= self._born[1] + self._longest
        return is_old and all(item.lease.report.seen >= born for item in self.replicas.values())
