"""
The protocol of replicas: how one of them lives with the others, as a state machine. No I/O, no clocks, no event loop.

A replica lives by one Lease: in leader mode by the only one, with shards by its own. It acts while its Lease is
renewed in time. Otherwise, its life ends, and a new replica begins in its place, with a new name that owns nothing. So
no process can act upon what was meant for the former life.

A replica reports its slots in the Lease before it handles their objects, and reports them as left only afterwards.
Every write fails if the Lease has changed meanwhile. :mod:`kopf._coordination.lease_renewal` tells when to write,
:mod:`kopf._coordination.assignment` decides about owners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from kopf._coordination.assignment import Assignment, Report
from kopf._coordination.lease_observations import LeaseObservations, ObservedLease
from kopf._coordination.lease_renewal import LeaseRenewal, Step
from kopf._coordination.leases import LEADER, SHARDS, Lease, Terms, name_holder, round_up
from kopf._coordination.slot_coordinator import Coordinator
from kopf._values.resources import is_newer
from kopf._values.slots import Slots


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
        self.is_giving_up = False  # until the caller has stopped everything
        self._is_synced = False  # whether it has listed all Leases once
        self._is_informed = False  # whether it has listed them since it became the coordinator
        self._listing: dict[str, str] | None = None  # the versions known when the listing began
        self._reading: dict[str, str] = {}  # the same for single Leases
        self.renewal = LeaseRenewal(terms, self.observed)
        self._begin()

    def _begin(self) -> None:
        self.name = self._make_name()  # for this life of the replica
        self.renewal.begin(self.terms.name if self.terms.mode == LEADER and not self.is_leaving else "")
        self.acting: Slots = frozenset()
        self.draining: Slots = frozenset()

    # ------------------------------------------------------------------ its role

    @property
    def is_alive(self) -> bool:
        """Whether it has its Lease, as far as it knows."""
        return self.renewal.accepted is not None

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
        return self.is_leaving and not self.is_alive and not self.renewal.is_busy(self.renewal.own)

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
        if lease.name == self.renewal.own and lease.holder == self.name:
            self.renewal.accept(lease, now)

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
        self.renewal.doubts.discard(name)
        is_restored = lease is not None and is_newer(version, lease.version)
        if lease is None or is_restored:
            self.observed.observe_absence(name, version, now)
            if is_restored:  # e.g. from a backup: our knowledge is void, look again
                self.renewal.doubts.add(name)
        else:
            self.observe(lease, now)

    def accept_write(self, name: str, lease: Lease | None, now: float) -> None:
        """Accept the result of a write: the new Lease, or ``None`` if the old version does not exist anymore."""
        self.renewal.end(name, is_lost=lease is None)
        if lease is not None:
            self.observe(lease, now)

    def accept_failure(self, name: str, started: float) -> None:
        """Accept that a write, a read, or a listing (no name) has failed. The write can still reach the server."""
        self._reading.pop(name, None)
        self._listing = self._listing if name else None
        self.renewal.fail(name, started)

    def accept_end(self, slots: Slots) -> None:
        """Accept that the slots are handed over."""
        self.draining -= slots

    def accept_stop(self) -> None:
        """Accept that everything is stopped after giving up."""
        self.is_giving_up = False

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
            step.wake_up(self.renewal.deadline)
        return step

    def _check_life(self, now: float, step: Step) -> None:
        """Give up if the Lease is lost, or possibly lost."""
        if self.renewal.accepted is None:
            return
        own = self.renewal.own
        seen = self.observed.known.get(own)
        if now >= self.renewal.deadline:
            self._give_up(f"the lease {own} could not be renewed in {self.terms.renew_deadline:g} s", step)
        elif seen is None:
            self._give_up(f"the lease {own} was deleted", step)
        elif self.is_leaving and seen.lease.report.former == self.name:
            self._begin()
        elif seen.lease.holder != self.name:
            who = seen.lease.holder or "nobody"
            self._give_up(f"the lease {own} was taken away, and belongs to {who} now", step)

    def _give_up(self, reason: str, step: Step) -> None:
        step.gave_up = reason
        self.is_giving_up = True
        self._formers.add(self.name)
        self.renewal.give_up()
        self._reading.clear()
        self._listing = None
        self._begin()

    def _look(self, now: float, step: Step) -> None:
        """Read Leases where observations are not enough."""
        for name in self.renewal.doubts - self._reading.keys():
            if self.renewal.is_time(name, now, step):
                self._reading[name] = self._get_version(name)
                step.reads.append(name)
        is_needed = not self._is_synced or (self.is_coordinator and not self._is_informed)
        if is_needed and self._listing is None and self.renewal.is_time("", now, step):
            self._listing = {name: self._get_version(name) for name in self.observed.known}
            step.is_listing = True

    def _get_version(self, name: str) -> str:
        seen = self.observed.known.get(name)
        return "" if seen is None else seen.lease.version

    # ------------------------------------------------------------------ our own slots

    def _move(self, step: Step) -> None:
        """Take slots that are ours, are reported, and stay so in writes under way; leave slots that are not ours."""
        # Moves would be safe without reports, as only newer ones count; but assignments made anew know only reports.
        if self.renewal.accepted is None:
            return
        wanted = self._get_wanted(self.assignment)
        reported = self.renewal.get_reported(self.renewal.accepted)
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
        if not self.is_alive and not self.renewal.is_busy(self.renewal.own):
            chosen = self._choose_lease(now, step)
            if chosen != self.renewal.own and self.renewal.sent:  # they can still succeed: no replica has two Leases
                self._formers.add(self.name)
                self._begin()
            self.renewal.own = chosen
        if self.renewal.own:
            seen = self.observed.known.get(self.renewal.own)
            lease = Lease(name=self.renewal.own) if seen is None else seen.lease
            former = lease.report.former if lease.holder in {"", self.name} else lease.holder
            is_over = self.is_alive and self._is_idle and not self.is_coordinator
            lease = self._release(lease) if is_over else self._hold(lease, self._report(self.assignment, former))
            self.renewal.write(lease, now, step)

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
        numbers = (f"{self.terms.name}-{number}" for number in range(len(self.observed.known) + 1))
        free = {item.lease.name for item in self.observed.own if not item.lease.holder}
        return next(name for name in numbers if name in free or name not in self.observed.known)

    # ------------------------------------------------------------------ the slots of all

    def _coordinate(self, now: float, step: Step) -> None:
        """Act as the coordinator, or become it if there is none."""
        head = self.observed.head
        if head is None or head.lease.holder != self.name:
            self._is_informed, self._listing = False, None
            self._run_for(ObservedLease(Lease(name=self.terms.name), now) if head is None else head, now, step)
        elif self.is_leaving and (self._is_idle or self.terms.mode == SHARDS):
            self.renewal.write(self._release(head.lease), now, step)
        else:
            assignment = head.lease.assignment
            if self._is_informed:
                assignment = self._coordinator.plan(head.lease, self.name, self._generation, now, self.is_leaving)
            report = self._report_as_head(assignment, head.lease.report.former)
            self.renewal.write(replace(self._hold(head.lease, report), assignment=assignment), now, step)
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
            self.renewal.write(self._hold(lease, report), now, step)

    def _report_as_head(self, assignment: Assignment | None, former: str) -> Report:
        report = self._report(assignment, former)
        # With shards, this report is in the other Lease, by which the coordinator lives, like all replicas.
        return report if self.terms.mode == LEADER else replace(report, held=frozenset(), seen=0, is_leaving=False)

    def _revoke(self, now: float, step: Step) -> None:
        """Take Leases away from replicas that do not renew them: if the server accepts this, they are gone."""
        for holder, seen in self.observed.replicas.items():
            if holder != self.name and now >= seen.expiry:
                report = replace(seen.lease.report, held=frozenset(), former=holder)
                self.renewal.write(replace(seen.lease, holder="", duration=1, report=report), now, step)
            elif holder != self.name:
                step.wake_up(seen.expiry)

    # ------------------------------------------------------------------ the content of the Leases

    @property
    def _is_idle(self) -> bool:
        return self.is_leaving and not self.acting and not self.draining

    def _hold(self, lease: Lease, report: Report) -> Lease:
        """Renew the Lease, or take it."""
        if lease.holder != self.name:
            transitions = lease.transitions + bool(lease.version)
            lease = replace(lease, holder=self.name, transitions=transitions, acquired="")
        return replace(lease, duration=round_up(self.terms.lease_duration), report=report, is_ours=True)

    def _release(self, lease: Lease) -> Lease:
        """Release the Lease, and announce our end if we live by it."""
        former = self.name if lease.name == self.renewal.own else lease.report.former
        return replace(lease, holder="", duration=1, report=replace(lease.report, held=frozenset(), former=former))
