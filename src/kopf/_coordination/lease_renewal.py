"""
Lease renewal: when to write the Leases, which writes are under way, and until when a replica may act by its own Lease.

No I/O, no clocks: callers pass the times, in seconds, and report the answers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import NamedTuple

from kopf._coordination.lease_observations import LeaseObservations
from kopf._coordination.leases import Lease, Terms
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


class LeaseRenewal:
    """
    The writes of Leases by one replica: its own one, by which it lives, and others.

    Large because all of this decides about the next write.
    """

    def __init__(self, terms: Terms, observed: LeaseObservations) -> None:
        self._terms = terms
        self._observed = observed
        self._beat = 0
        self._writing: set[str] = set()
        self._not_before: dict[str, float] = {}  # the time of the next request after a failure, by Lease
        self._renew_at: dict[str, float] = {}
        self.doubts: set[str] = set()
        """The Leases to read before the next write."""
        self.begin("")

    def begin(self, own: str) -> None:
        """Begin another life of the replica, which has accepted and sent nothing yet."""
        self.own = own
        """The name of the Lease by which it lives; empty if it is not chosen yet."""
        self.accepted: Lease | None = None
        """Its own Lease as the server has it."""
        self.sent: dict[int, _Sent] = {}
        """The writes of its own Lease that have possibly reached the server, or still can."""
        self.deadline = 0.0
        """The time until which it may act."""

    def accept(self, lease: Lease, now: float) -> None:
        """Accept its own Lease as the server has it: every renewal delays the deadline."""
        sent = self.sent.get(lease.report.beat)
        if sent is not None and (self.accepted is None or now < self.deadline):  # a shut fence is final
            self.deadline = max(self.deadline, sent.started + self._terms.renew_deadline)
        self.accepted = lease
        self.sent = {beat: sent for beat, sent in self.sent.items() if sent.guard == lease.version}

    def get_reported(self, lease: Lease) -> Slots:
        """Return the slots that the accepted Lease reports, and that stay so in writes under way."""
        return lease.report.held.intersection(*(sent.held for sent in self.sent.values()))

    def is_busy(self, name: str) -> bool:
        """Tell if the Lease cannot be written now: it is being written, or its state is in doubt."""
        return name in self._writing or name in self.doubts

    def is_time(self, name: str, now: float, step: Step) -> bool:
        """Tell if a request about the Lease (no name: about all) can be made now, despite earlier failures."""
        not_before = self._not_before.get(name, now)
        if now < not_before:
            step.wake_up(not_before)
        return now >= not_before

    def write(self, lease: Lease, now: float, step: Step) -> None:
        """Write the Lease if a write is due: its content changes, or it is time for its renewal."""
        if self.is_busy(lease.name) or not self.is_time(lease.name, now, step):
            return
        seen = self._observed.known.get(lease.name)
        if seen is not None and lease.is_same(seen.lease) and now < (renew_at := self._renew_at.get(lease.name, now)):
            step.wake_up(renew_at)
            return
        self._beat += 1
        lease = replace(lease, report=replace(lease.report, beat=self._beat))
        self._writing.add(lease.name)
        self._renew_at[lease.name] = now + self._terms.retry_period
        if lease.name == self.own:
            self.sent[self._beat] = _Sent(now, lease.version, lease.report.held)
        step.writes.append(lease)

    def end(self, name: str, *, is_lost: bool) -> None:
        """Accept the end of a write; it is lost if the Lease has changed meanwhile."""
        self._writing.discard(name)
        if is_lost:
            self.doubts.add(name)

    def fail(self, name: str, started: float) -> None:
        """Accept that a request has failed. If it is a write, it can still reach the server."""
        self._writing.discard(name)
        self._not_before[name] = started + self._terms.retry_period

    def give_up(self) -> None:
        """Forget the answers to come: the outcome of all writes under way is in doubt."""
        self.doubts |= self._writing
        self._writing.clear()
