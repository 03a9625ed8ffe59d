"""The coordinator: the decisions of the elected replica about the slots of all replicas. No I/O, no clocks."""

from __future__ import annotations

from collections.abc import Sequence

from kopf._coordination.assignment import Assignment, Place, Report, Situation, plan
from kopf._coordination.lease_observations import LeaseObservations
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms
from kopf._values.slots import ALL_SLOTS


class Coordinator:
    """Plans assignments by the observed Leases of the replicas."""

    def __init__(self, terms: Terms, observed: LeaseObservations) -> None:
        self._terms = terms
        self._observed = observed
        self._members: Sequence[str] = ()
        self._members_since = 0.0
        self.has_begun = False
        """Whether any replica is known to have had slots. Otherwise, former replicas are possibly starting, too."""

    def plan(self, lease: Lease, name: str, newest: int, now: float, is_leaving: bool) -> Assignment:
        """
        Plan the next assignment, instead of the one in the Lease of the coordinator.

        ``name`` is the coordinator itself; ``newest`` is the newest generation that it knows. It must have listed all
        Leases since its election.
        """
        reports = {holder: seen.lease.report for holder, seen in self._observed.replicas.items()}
        generation = max(newest + 1, int(lease.version) if lease.version.isdecimal() else 0)
        old = lease.assignment
        if old is None:
            return _begin_anew(reports, generation)
        owners = {place.owner for place in old.places.values()} - {"", name}
        self._observed.expect(owners, now)
        members = self._choose_members(name, now, is_leaving)
        if members != self._members:
            self._members, self._members_since = members, now
        can_move = now >= self._members_since + self._terms.retry_period  # several replicas often start at once
        are_all_there = can_move or self._terms.mode == LEADER or all(item.lease.holder for item in self._observed.own)
        situation = Situation(
            members=members,
            reports=reports,
            gone={owner for owner in owners if self._observed.is_gone(owner, now)},
            can_fill=(self.has_begun or are_all_there) and (not old.born or self._observed.is_settled(old.born, now)),
            can_move=can_move,
        )
        return plan(old, situation, generation)

    def _choose_members(self, name: str, now: float, is_leaving: bool) -> Sequence[str]:
        """Choose the replicas that can get slots."""
        if self._terms.mode == LEADER:
            return [] if is_leaving else [name]
        alive = {holder: seen.lease.report for holder, seen in self._observed.replicas.items() if now < seen.expiry}
        return sorted(name for name, report in alive.items() if report.mode == SHARDS and not report.is_leaving)


def _begin_anew(reports: dict[str, Report], generation: int) -> Assignment:
    """Make a first assignment, or replace a lost one: slots that are not held are uncertain."""
    held = {slot: holder for holder, report in reports.items() for slot in report.held}
    places = {slot: Place(held[slot], generation) if slot in held else Place() for slot in sorted(ALL_SLOTS)}
    return Assignment(generation=generation, places=places, born=generation)
