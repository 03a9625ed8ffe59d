"""
The protocol: how one replica lives with the others, as a state machine. No I/O, no clocks, no event loop.

A replica lives by one Lease: in the mode of leaders, by the only one there is; with shards, by one of its own. It acts
as long as the Lease was renewed lately. If it was not, the replica is over, and another one begins in its place: with a
new name, which owns nothing. So what was meant for the former one cannot be acted upon.

Nothing is handled before it is reported in the Lease, or after it is reported as left. Every write fails if the Lease
has changed meanwhile. See :mod:`kopf._coordination.assignment` for who owns what.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from kopf._coordination.assignment import Assignment, Report
from kopf._coordination.coordinator import Coordinator
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms, round_up
from kopf._coordination.sightings import Sighting, Sightings
from kopf._values.resource_versions import is_newer
from kopf._values.slots import Slots


@dataclasses.dataclass
class Step:
    """What is to be done now, and when to look again, unless something happens earlier."""

    wake_at: float
    writes: list[Lease] = dataclasses.field(default_factory=list)
    reads: list[str] = dataclasses.field(default_factory=list)
    """The Leases to be read, from the server and not from what was seen."""
    is_listing: bool = False
    """Whether all Leases are to be read."""
    taken: Slots = frozenset()
    left: Slots = frozenset()
    """What is to be handed over, which is to be told."""
    gave_up: str = ""
    """Why everything is to be stopped at once, if so; it is to be told when this is done."""

    def wake_up(self, time: float) -> None:
        """Look again not later than then."""
        self.wake_at = min(self.wake_at, time)


class _Sent(NamedTuple):
    """A write that can have reached the server, or can reach it yet; ``guard`` is the version that it replaces."""

    started: float
    guard: str
    held: Slots


class Replica:
    """
    One replica. The times are in seconds, by a clock that goes on while the process is frozen.

    Large because it is one state machine: what it may do depends on all that it knows.
    """

    def __init__(self, terms: Terms, make_name: Callable[[], str]) -> None:
        self.terms = terms
        self.sightings = Sightings(terms.name, terms.lease_duration)
        self.assignment: Assignment | None = None
        """The newest one that is known."""
        self.is_leaving = False
        """To be set: then, it hands everything over, takes nothing, and releases the Leases."""
        self._coordinator = Coordinator(terms, self.sightings)
        self._make_name = make_name
        self._formers: set[str] = set()
        self._beat = 0
        self._is_giving_up = False
        self._is_synced = False  # whether all Leases were looked at once
        self._is_informed = False  # whether this was done since it is the coordinator
        self._listing: dict[str, str] | None = None  # the versions that were known when the listing was begun
        self._reading: dict[str, str] = {}  # the same for single Leases
        self._writing: set[str] = set()
        self._doubts: set[str] = set()  # the Leases that are to be read before they are written again
        self._not_before: dict[str, float] = {}  # when to talk to the server again after a failure, by the Lease
        self._renew_at: dict[str, float] = {}
        self._begin()

    def _begin(self) -> None:
        self.name = self._make_name()  # of the replica in this life
        self._lease_name = self.terms.name if self.terms.mode == LEADER else ""
        self._accepted: Lease | None = None  # our Lease as the server has it
        self._sent: dict[int, _Sent] = {}
        self.acting: Slots = frozenset()
        self.draining: Slots = frozenset()
        self.deadline = 0.0
        """Until when it may act."""

    # ------------------------------------------------------------------ what it is

    @property
    def is_alive(self) -> bool:
        """Whether it has its Lease, as far as is known."""
        return self._accepted is not None

    @property
    def has_joined(self) -> bool:
        """Whether it lives among the others, if only as one that stands by for a leader that it knows."""
        head = self.sightings.head
        return self.is_alive or (self.terms.mode == LEADER and head is not None and bool(head.lease.holder))

    @property
    def is_coordinator(self) -> bool:
        """Whether it has the Lease of the coordinator, as far as is known."""
        head = self.sightings.head
        return head is not None and head.lease.holder == self.name

    @property
    def is_out(self) -> bool:
        """Whether it has left."""
        return self.is_leaving and not self.is_alive and not self._is_busy(self._lease_name)

    @property
    def _generation(self) -> int:
        return 0 if self.assignment is None else self.assignment.generation

    # ------------------------------------------------------------------ what has happened

    def observe(self, lease: Lease, now: float) -> None:
        """A Lease was seen, in whichever way."""
        if not self.sightings.observe(lease, now):
            return
        if lease.assignment is not None and lease.assignment.generation > self._generation:
            self.assignment = lease.assignment
        if lease.name == self._lease_name and lease.holder == self.name:
            self._accept(lease, now)

    def observe_deletion(self, name: str, version: str, now: float) -> None:
        """A Lease was seen to be deleted."""
        self.sightings.observe_absence(name, version, now)

    def accept_listing(self, leases: Collection[Lease], now: float) -> None:
        """All Leases are read."""
        known = self._listing or {}
        names = {lease.name for lease in leases}
        for name in known.keys() - names:
            self.sightings.observe_absence(name, known[name], now)
        for lease in leases:
            self.observe(lease, now)
        self._is_synced = True
        self._is_informed = self._listing is not None
        self._listing = None

    def accept_read(self, name: str, lease: Lease | None, now: float) -> None:
        """The Lease is read, or it is not there."""
        version = self._reading.pop(name, "")
        self._doubts.discard(name)
        is_restored = lease is not None and is_newer(version, lease.version)
        if lease is None or is_restored:
            self.sightings.observe_absence(name, version, now)
            self._doubts |= {name} if is_restored else set()  # by a backup, e.g.: what we know is gone, look again
        else:
            self.observe(lease, now)

    def accept_write(self, lease: Lease, now: float) -> None:
        """The Lease is written; this is what has come of it."""
        self._writing.discard(lease.name)
        self.observe(lease, now)

    def accept_conflict(self, name: str) -> None:
        """The Lease is not written, as it is not in that version anymore, or not there at all."""
        self._writing.discard(name)
        self._doubts.add(name)

    def accept_failure(self, name: str, started: float) -> None:
        """What was begun then has failed: to write or read a Lease, or to list (no name). A write can be made yet."""
        self._writing.discard(name)
        self._reading.pop(name, None)
        self._listing = self._listing if name else None
        self._not_before[name] = started + self.terms.retry_period

    def accept_end(self, slots: Slots) -> None:
        """The slots that were to be left are left."""
        self.draining -= slots

    def accept_stop(self) -> None:
        """Everything is stopped, as it has given up."""
        self._is_giving_up = False

    def _accept(self, lease: Lease, now: float) -> None:
        sent = self._sent.get(lease.report.beat)
        if sent is not None and (self._accepted is None or now < self.deadline):  # the fence was shut: that is final
            self.deadline = max(self.deadline, sent.started + self.terms.renew_deadline)
        self._accepted = lease
        self._sent = {beat: sent for beat, sent in self._sent.items() if sent.guard == lease.version}

    # ------------------------------------------------------------------ what is to be done

    def step(self, now: float) -> Step:
        """Decide what is to be done now. It is expected to be done: the answers are to be told."""
        step = Step(now + self.terms.retry_period)
        self._check_life(now, step)
        if self._is_giving_up:
            return step
        self._look(now, step)
        if self._is_synced:
            self._move(step)
            if self.terms.mode == SHARDS:
                self._live(now, step)
            self._coordinate(now, step)
        if self.is_alive:
            step.wake_up(self.deadline)
        return step

    def _check_life(self, now: float, step: Step) -> None:
        """Give up if the Lease is lost, or can be by now."""
        if self._accepted is None:
            return
        seen = self.sightings.get(self._lease_name)
        if now >= self.deadline:
            self._give_up(f"the lease {self._lease_name} could not be renewed in {self.terms.renew_deadline:g} s", step)
        elif seen is None:
            self._give_up(f"the lease {self._lease_name} was deleted", step)
        elif self.is_leaving and seen.lease.report.former == self.name:
            self._begin()
        elif seen.lease.holder != self.name:
            who = seen.lease.holder or "nobody"
            self._give_up(f"the lease {self._lease_name} was taken away, and belongs to {who} now", step)

    def _give_up(self, reason: str, step: Step) -> None:
        step.gave_up = reason
        self._is_giving_up = True
        self._formers.add(self.name)
        self._doubts |= self._writing
        self._writing.clear()
        self._reading.clear()
        self._listing = None
        self._begin()

    def _look(self, now: float, step: Step) -> None:
        """Read what is not known well enough from what is seen."""
        for name in self._doubts - self._reading.keys():
            if self._is_time(name, now, step):
                self._reading[name] = self._get_version(name)
                step.reads.append(name)
        is_needed = not self._is_synced or (self.is_coordinator and not self._is_informed)
        if is_needed and self._listing is None and self._is_time("", now, step):
            self._listing = {name: self._get_version(name) for name in self.sightings.names}
            step.is_listing = True

    def _is_time(self, name: str, now: float, step: Step) -> bool:
        not_before = self._not_before.get(name, now)
        if now < not_before:
            step.wake_up(not_before)
        return now >= not_before

    def _get_version(self, name: str) -> str:
        seen = self.sightings.get(name)
        return "" if seen is None else seen.lease.version

    # ------------------------------------------------------------------ our own slots

    def _move(self, step: Step) -> None:
        """Take what is ours, is reported, and is not about to be reported otherwise; leave what is not ours."""
        # Moves are safe without reports, too, as only newer ones count; an assignment made anew knows no other owners.
        if self._accepted is None:
            return
        wanted = self._get_wanted(self.assignment)
        reported = self._accepted.report.held.intersection(*(sent.held for sent in self._sent.values()))
        step.taken = (wanted & reported) - self.acting - self.draining
        step.left = self.acting - wanted
        self.acting = (self.acting | step.taken) - step.left
        self.draining |= step.left

    def _get_wanted(self, assignment: Assignment | None) -> Slots:
        return frozenset() if assignment is None or self.is_leaving else assignment.get_slots(self.name)

    def _report(self, assignment: Assignment | None, former: str) -> Report:
        return Report(
            mode=self.terms.mode,
            held=self.acting | self.draining | self._get_wanted(assignment),
            seen=0 if assignment is None else assignment.generation,
            is_leaving=self.is_leaving,
            former=former,
            version=self.terms.version,
            handlers=self.terms.handlers,
        )

    def _live(self, now: float, step: Step) -> None:
        """Get a Lease of our own, and keep it until everything is handed over."""
        if not self.is_alive and self.is_leaving:
            return
        if not self.is_alive and not self._is_busy(self._lease_name):
            chosen = self._choose_lease(now, step)
            if self._sent and chosen != self._lease_name:  # that write can be made yet: nobody has two Leases
                self._formers.add(self.name)
                self._begin()
            self._lease_name = chosen
        if self._lease_name:
            seen = self.sightings.get(self._lease_name)
            lease = Lease(name=self._lease_name) if seen is None else seen.lease
            former = lease.report.former if lease.holder in {"", self.name} else lease.holder
            is_over = self.is_alive and self._is_idle and not self.is_coordinator
            lease = self._release(lease) if is_over else self._hold(lease, self._report(self.assignment, former))
            self._emit(lease, now, step)

    def _choose_lease(self, now: float, step: Step) -> str:
        """
        Choose one that is free, or a new one; so there are not more of them than there were replicas at once.

        If the same pod has died, it waits for the Lease of the former process, as it can crash again and again.
        """
        for holder, seen in self.sightings.replicas.items():
            if holder in self._formers:
                return seen.lease.name
            if holder.rpartition("_")[0] == self.terms.identity and not seen.is_renewed:
                if now < seen.expiry:
                    step.wake_up(seen.expiry)
                return seen.lease.name if now >= seen.expiry else ""
        numbers = (f"{self.terms.name}-{number}" for number in range(len(self.sightings.names) + 1))
        free = self.sightings.free_names
        return next(name for name in numbers if name in free or name not in self.sightings.names)

    # ------------------------------------------------------------------ the slots of all

    def _coordinate(self, now: float, step: Step) -> None:
        """Be the coordinator, or become it if there is none."""
        head = self.sightings.head
        if head is None or head.lease.holder != self.name:
            self._is_informed, self._listing = False, None
            self._run_for(Sighting(Lease(name=self.terms.name), now) if head is None else head, now, step)
        elif self.is_leaving and (self._is_idle or self.terms.mode == SHARDS):
            self._emit(self._release(head.lease), now, step)
        else:
            assignment = head.lease.assignment
            if self._is_informed:
                assignment = self._coordinator.plan(head.lease, self.name, self._generation, now, self.is_leaving)
            report = self._report_as_head(assignment, head.lease.report.former)
            self._emit(replace(self._hold(head.lease, report), assignment=assignment), now, step)
            if self._is_informed:
                self._revoke(now, step)

    def _run_for(self, head: Sighting, now: float, step: Step) -> None:
        """Take the Lease of the coordinator if nobody has it. A leader that has lost it is gone."""
        lease = head.lease
        is_free = not lease.holder or lease.holder in self._formers or now >= head.expiry
        is_candidate = not self.is_leaving and (self.is_alive or self.terms.mode == LEADER)
        if not is_free:
            step.wake_up(head.expiry)
        elif is_candidate:
            is_leader = lease.holder and lease.report.mode == LEADER
            report = self._report_as_head(lease.assignment, lease.holder if is_leader else lease.report.former)
            self._emit(self._hold(lease, report), now, step)

    def _report_as_head(self, assignment: Assignment | None, former: str) -> Report:
        report = self._report(assignment, former)
        # With shards, it is in the other Lease, by which the coordinator lives as all replicas do.
        return report if self.terms.mode == LEADER else replace(report, held=frozenset(), seen=0, is_leaving=False)

    def _revoke(self, now: float, step: Step) -> None:
        """Take the Leases away from those that do not renew them: if that is accepted, they are gone."""
        for holder, seen in self.sightings.replicas.items():
            if holder != self.name and now >= seen.expiry:
                report = replace(seen.lease.report, held=frozenset(), former=holder)
                self._emit(replace(seen.lease, holder="", duration=1, report=report), now, step)
            elif holder != self.name:
                step.wake_up(seen.expiry)

    # ------------------------------------------------------------------ writing

    @property
    def _is_idle(self) -> bool:
        return self.is_leaving and not self.acting and not self.draining

    def _is_busy(self, name: str) -> bool:
        return name in self._writing or name in self._doubts

    def _hold(self, lease: Lease, report: Report) -> Lease:
        """Renew the Lease, or take it."""
        if lease.holder != self.name:
            transitions = lease.transitions + bool(lease.version)
            lease = replace(lease, holder=self.name, transitions=transitions, acquired="", is_ours=True)
        return replace(lease, duration=round_up(self.terms.lease_duration), report=report)

    def _release(self, lease: Lease) -> Lease:
        """Release the Lease; say that we are gone if we live by it."""
        former = self.name if lease.name == self._lease_name else lease.report.former
        return replace(lease, holder="", duration=1, report=replace(lease.report, held=frozenset(), former=former))

    def _emit(self, lease: Lease, now: float, step: Step) -> None:
        """Write the Lease if it has to be written now."""
        if self._is_busy(lease.name) or not self._is_time(lease.name, now, step):
            return
        seen = self.sightings.get(lease.name)
        if seen is not None and lease.is_same(seen.lease) and now < (renew_at := self._renew_at.get(lease.name, now)):
            step.wake_up(renew_at)
            return
        self._beat += 1
        lease = replace(lease, report=replace(lease.report, beat=self._beat))
        self._writing.add(lease.name)
        self._renew_at[lease.name] = now + self.terms.retry_period
        if lease.name == self._lease_name:
            self._sent[self._beat] = _Sent(now, lease.version, lease.report.held)
        step.writes.append(lease)
