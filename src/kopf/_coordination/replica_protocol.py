"""
The protocol of replicas: how one of them lives with the others, as a state machine. No I/O, no clocks, no event loop.

A replica lives by one Lease: in leader mode by the only one, with shards by its own. It acts while its Lease is
renewed in time. Otherwise, its life ends, and a new replica begins in its place, with a new name that owns nothing. So
no process can act upon what was meant for the former life.

A replica reports its slots in the Lease before it handles their objects, and reports them as left only afterwards.
Every write fails if the Lease has changed meanwhile. :mod:`kopf._coordination.assignment` decides about owners.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from kopf._coordination.assignment import Assignment, Report
from kopf._coordination.lease_observations import LeaseObservations, ObservedLease
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms, name_holder, round_up
from kopf._coordination.slot_coordinator import Coordinator
from kopf._values.resource_versions import is_newer
from kopf._values.slots import Slots


@dataclasses.dataclass
class Step:
    """The actions to take now, and the time of the next step, unless something happens earlier."""

    wake_at: float
    writes: list[Lease] = dataclasses.field(default_factory=list)
    reads: list[str] = dataclasses.field(default_factory=list)
    """The Leases to read from the server, instead of relying on observations."""
    is_listing: bool = False
    """Whether to read all Leases."""
    taken: Slots = frozenset()
    left: Slots = frozenset()
    """The slots to hand over; :meth:`Replica.accept_end` must follow."""
    gave_up: str = ""
    """Why to stop everything at once; empty if not. :meth:`Replica.accept_stop` must follow."""

    def wake_up(self, time: float) -> None:
        """Make the next step not later than that."""
        self.wake_at = min(self.wake_at, time)


class _Sent(NamedTuple):
    """A write that has possibly reached the server, or still can; ``guard`` is the version that it replaces."""

    started: float
    guard: str
    held: Slots


class Replica:
    """
    One replica. Times are in seconds, by a clock that goes on while the process is frozen.

    Large because it is one state machine: its permitted actions depend on everything it knows.
    """

    def __init__(self, terms: Terms, make_name: Callable[[], str]) -> None:
        self.terms = terms
        self.observed = LeaseObservations(terms.name, terms.lease_duration)
        self.assignment: Assignment | None = None
        """The newest known one."""
        self.is_leaving = False
        """Set by the caller: then the replica hands everything over, takes nothing, and releases the Leases."""
        self._coordinator = Coordinator(terms, self.observed)
        self._make_name = make_name
        self._formers: set[str] = set()
        self._beat = 0
        self.is_giving_up = False  # until the caller has stopped everything
        self._is_synced = False  # whether it has listed all Leases once
        self._is_informed = False  # whether it has listed them since it became the coordinator
        self._listing: dict[str, str] | None = None  # the versions known when the listing began
        self._reading: dict[str, str] = {}  # the same for single Leases
        self._writing: set[str] = set()
        self._doubts: set[str] = set()  # the Leases to read before the next write
        self._not_before: dict[str, float] = {}  # the time of the next request after a failure, by Lease
        self._renew_at: dict[str, float] = {}
        self._begin()

    def _begin(self) -> None:
        self.name = self._make_name()  # for this life of the replica
        self._lease_name = self.terms.name if self.terms.mode == LEADER and not self.is_leaving else ""
        self._accepted: Lease | None = None  # our Lease as the server has it
        self._sent: dict[int, _Sent] = {}
        self.acting: Slots = frozenset()
        self.draining: Slots = frozenset()
        self.deadline = 0.0
        """The time until which it may act."""

    # ------------------------------------------------------------------ its role

    @property
    def is_alive(self) -> bool:
        """Whether it has its Lease, as far as it knows."""
        return self._accepted is not None

    def has_joined(self, now: float) -> bool:
        """Whether it is among the others, possibly as a standby of another leader that renews its Lease."""
        head = self.observed.head
        is_led = head is not None and head.lease.holder not in {"", *self._formers} and now < head.expiry
        return self.is_alive or (self.terms.mode == LEADER and is_led)

    @property
    def is_coordinator(self) -> bool:
        """Whether it has the Lease of the coordinator, as far as it knows."""
        head = self.observed.head
        return head is not None and head.lease.holder == self.name

    @property
    def is_out(self) -> bool:
        """Whether it has left."""
        return self.is_leaving and not self.is_alive and not self._is_busy(self._lease_name)

    @property
    def _generation(self) -> int:
        return 0 if self.assignment is None else self.assignment.generation

    # ------------------------------------------------------------------ inputs

    def observe(self, lease: Lease, now: float) -> None:
        """Accept a Lease from any source."""
        if not self.observed.observe(lease, now):
            return
        self._coordinator.has_begun |= bool(lease.report.held)
        if lease.assignment is not None and lease.assignment.generation > self._generation:
            self.assignment = lease.assignment
        if lease.name == self._lease_name and lease.holder == self.name:
            self._accept(lease, now)

    def observe_deletion(self, name: str, version: str, now: float) -> None:
        """Accept the deletion of a Lease."""
        self.observed.observe_absence(name, version, now)

    def accept_listing(self, leases: Collection[Lease], now: float) -> None:
        """Accept the result of a listing."""
        known = self._listing or {}
        names = {lease.name for lease in leases}
        for name in known.keys() - names:
            self.observed.observe_absence(name, known[name], now)
        for lease in leases:
            self.observe(lease, now)
        self._is_synced = True
        self._is_informed = self._listing is not None
        self._listing = None

    def accept_read(self, name: str, lease: Lease | None, now: float) -> None:
        """Accept the result of a read: the Lease, or ``None`` if it does not exist."""
        version = self._reading.pop(name, "")
        self._doubts.discard(name)
        is_restored = lease is not None and is_newer(version, lease.version)
        if lease is None or is_restored:
            self.observed.observe_absence(name, version, now)
            self._doubts |= {name} if is_restored else set()  # e.g. from a backup: our knowledge is void, look again
        else:
            self.observe(lease, now)

    def accept_write(self, name: str, lease: Lease | None, now: float) -> None:
        """Accept the result of a write: the new Lease, or ``None`` if the old version does not exist anymore."""
        self._writing.discard(name)
        if lease is None:
            self._doubts.add(name)
        else:
            self.observe(lease, now)

    def accept_failure(self, name: str, started: float) -> None:
        """Accept that a write, a read, or a listing (no name) has failed. The write can still reach the server."""
        self._writing.discard(name)
        self._reading.pop(name, None)
        self._listing = self._listing if name else None
        self._not_before[name] = started + self.terms.retry_period

    def accept_end(self, slots: Slots) -> None:
        """Accept that the slots are handed over."""
        self.draining -= slots

    def accept_stop(self) -> None:
        """Accept that everything is stopped after giving up."""
        self.is_giving_up = False

    def _accept(self, lease: Lease, now: float) -> None:
        sent = self._sent.get(lease.report.beat)
        if sent is not None and (self._accepted is None or now < self.deadline):  # a shut fence is final
            self.deadline = max(self.deadline, sent.started + self.terms.renew_deadline)
        self._accepted = lease
        self._sent = {beat: sent for beat, sent in self._sent.items() if sent.guard == lease.version}

    # ------------------------------------------------------------------ the step

    def step(self, now: float) -> Step:
        """Decide about the next actions. The caller must perform them, and report the answers."""
        step = Step(now + self.terms.retry_period)
        self._check_life(now, step)
        if self.is_giving_up:
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
        """Give up if the Lease is lost, or possibly lost."""
        if self._accepted is None:
            return
        seen = self.observed.get(self._lease_name)
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
        self.is_giving_up = True
        self._formers.add(self.name)
        self._doubts |= self._writing
        self._writing.clear()
        self._reading.clear()
        self._listing = None
        self._begin()

    def _look(self, now: float, step: Step) -> None:
        """Read Leases where observations are not enough."""
        for name in self._doubts - self._reading.keys():
            if self._is_time(name, now, step):
                self._reading[name] = self._get_version(name)
                step.reads.append(name)
        is_needed = not self._is_synced or (self.is_coordinator and not self._is_informed)
        if is_needed and self._listing is None and self._is_time("", now, step):
            self._listing = {name: self._get_version(name) for name in self.observed.names}
            step.is_listing = True

    def _is_time(self, name: str, now: float, step: Step) -> bool:
        not_before = self._not_before.get(name, now)
        if now < not_before:
            step.wake_up(not_before)
        return now >= not_before

    def _get_version(self, name: str) -> str:
        seen = self.observed.get(name)
        return "" if seen is None else seen.lease.version

    # ------------------------------------------------------------------ our own slots

    def _move(self, step: Step) -> None:
        """Take slots that are ours, are reported, and stay so in writes under way; leave slots that are not ours."""
        # Moves would be safe without reports, as only newer ones count; but assignments made anew know only reports.
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
        """Acquire our own Lease, and keep it until everything is handed over."""
        if not self.is_alive and self.is_leaving:
            return
        if not self.is_alive and not self._is_busy(self._lease_name):
            chosen = self._choose_lease(now, step)
            if self._sent and chosen != self._lease_name:  # that write can still succeed: no replica has two Leases
                self._formers.add(self.name)
                self._begin()
            self._lease_name = chosen
        if self._lease_name:
            seen = self.observed.get(self._lease_name)
            lease = Lease(name=self._lease_name) if seen is None else seen.lease
            former = lease.report.former if lease.holder in {"", self.name} else lease.holder
            is_over = self.is_alive and self._is_idle and not self.is_coordinator
            lease = self._release(lease) if is_over else self._hold(lease, self._report(self.assignment, former))
            self._emit(lease, now, step)

    def _choose_lease(self, now: float, step: Step) -> str:
        """
        Choose a free Lease, or a new one; so there are never more Leases than there were replicas at once.

        If the same pod has died, wait for the Lease of the former process, because the pod can crash repeatedly.
        """
        for holder, seen in self.observed.replicas.items():
            if holder in self._formers:
                return seen.lease.name
            if name_holder(holder) == self.terms.identity and not seen.is_renewed:
                if now < seen.expiry:
                    step.wake_up(seen.expiry)
                return seen.lease.name if now >= seen.expiry else ""
        numbers = (f"{self.terms.name}-{number}" for number in range(len(self.observed.names) + 1))
        free = {item.lease.name for item in self.observed.own if not item.lease.holder}
        return next(name for name in numbers if name in free or name not in self.observed.names)

    # ------------------------------------------------------------------ the slots of all

    def _coordinate(self, now: float, step: Step) -> None:
        """Act as the coordinator, or become it if there is none."""
        head = self.observed.head
        if head is None or head.lease.holder != self.name:
            self._is_informed, self._listing = False, None
            self._run_for(ObservedLease(Lease(name=self.terms.name), now) if head is None else head, now, step)
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

    def _run_for(self, head: ObservedLease, now: float, step: Step) -> None:
        """Take the Lease of the coordinator if it is free. A leader that has lost it is gone."""
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
        # With shards, this report is in the other Lease, by which the coordinator lives, like all replicas.
        return report if self.terms.mode == LEADER else replace(report, held=frozenset(), seen=0, is_leaving=False)

    def _revoke(self, now: float, step: Step) -> None:
        """Take Leases away from replicas that do not renew them: if the server accepts this, they are gone."""
        for holder, seen in self.observed.replicas.items():
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
        """Release the Lease, and announce our end if we live by it."""
        former = self.name if lease.name == self._lease_name else lease.report.former
        return replace(lease, holder="", duration=1, report=replace(lease.report, held=frozenset(), former=former))

    def _emit(self, lease: Lease, now: float, step: Step) -> None:
        """Write the Lease if a write is due."""
        if self._is_busy(lease.name) or not self._is_time(lease.name, now, step):
            return
        seen = self.observed.get(lease.name)
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
