"""The log lines of one replica: one for each change of its role, and warnings about the group of replicas."""

from __future__ import annotations

import logging

from kopf._coordination.leases import LEADER, Lease, Terms, name_holder
from kopf._coordination.replica_protocol import Replica
from kopf._logging.once import Once
from kopf._values.replica_state import ReplicaState
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots

logger = logging.getLogger(__name__)


class RoleChangeLog:
    """Logs what happens to one replica; ``place`` is the namespace and the name of the group."""

    def __init__(self, terms: Terms, place: str) -> None:
        self._terms = terms
        self._place = place
        self._logged = ""
        self._is_failing = False
        self._warnings = Once(limit=100)

    def log_role(self, state: ReplicaState, replica: Replica) -> None:
        """Log the role of the replica, if it has changed."""
        text = "" if state.is_fenced else self._describe(state, replica)
        if text and text != self._logged:
            self._logged = text
            logger.info("%s", text)

    def _describe(self, state: ReplicaState, replica: Replica) -> str:
        """Describe the role, or return an empty text while it is about to change."""
        head, assignment = replica.observed.head, replica.assignment
        if replica.is_leaving or head is None:
            return ""
        is_concerned = self._terms.mode != LEADER or state.is_leading
        if is_concerned and assignment is not None and assignment.born and not state.held:
            return f"The lease {self._place} is new: waiting {self._terms.lease_duration:g} s for old holders to stop."
        if self._terms.mode != LEADER:
            is_unassigned = assignment is None or not assignment.get_slots(replica.name)
            if state.draining or (not state.held and not is_unassigned):
                return ""
            return f"Holding {len(state.held)} of {SLOT_COUNT} slots: {describe_slots(state.held)}."
        if state.is_leading and len(state.held) == SLOT_COUNT:
            return f"Leading as {state.identity}: the lease {self._place} is ours."
        if state.is_leading:
            what = "waiting until the former replicas have left, or their leases have expired"
            return f"The lease {self._place} is ours; {what}." if state.wanted else ""
        holder = name_holder(head.lease.holder)
        return f"Standing by: {self._terms.name} is led by {holder}." if holder else ""

    def log_moves(self, slots: Slots, replica: Replica) -> None:
        """Log which slots the replica hands over, and to which replicas."""
        places = {} if replica.assignment is None else replica.assignment.places
        targets = sorted({name_holder(place.target) for slot in slots if (place := places.get(slot))} - {""})
        logger.info("Handing over %d slots to %s.", len(slots), ", ".join(targets) or "the other replicas")

    def log_stuck(self, slots: Slots) -> None:
        """Log which slots the replica cannot hand over yet."""
        if self._warnings.is_new(("stuck", slots)):
            text = "Cannot hand over %d slots yet, because handlers still run there, in threads or uncancellable: %s."
            logger.warning(text, len(slots), describe_slots(slots))

    def log_unreleased(self, slots: Slots) -> None:
        """Log why the replica does not release its Lease at the exit."""
        why = f"something still runs in the slots {describe_slots(slots)}" if slots else "the server does not answer"
        text = "The lease of this replica is not released, as %s. Others take over when it expires, in %g s."
        logger.warning(text, why, self._terms.lease_duration)

    def log_fenced(self, reason: str) -> None:
        """Log that everything is stopped."""
        self._logged = ""
        logger.error("Fenced: %s; everything is stopped.", reason)

    def log_failure(self, problem: str) -> None:
        """Log a failed request: as a warning at first, as a debug message until a request succeeds."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        logger.log(level, "A request for the leases of %s has failed, and is tried again: %s", self._place, problem)

    def note_recovery(self) -> bool:
        """Note that the server answers. Return whether the request before had failed."""
        was_failing, self._is_failing = self._is_failing, False
        return was_failing

    def check_handlers(self, lease: Lease) -> None:
        """Warn, once each, about replicas of another operator, or of another version of this one."""
        other, terms = lease.report, self._terms
        if not lease.holder or not other.handlers or not terms.handlers or other.handlers == terms.handlers:
            return
        if self._warnings.is_new(("handlers", other.handlers)):
            logger.warning(
                "The replicas of %s have different handlers or namespaces: this one is %s%s, another one is "
                "%s%s. This is fine during an update of the operator. Two different operators need different names of "
                "their leases.",
                self._place,
                terms.identity,
                f" ({terms.version})" if terms.version else "",
                name_holder(lease.holder),
                f" ({other.version})" if other.version else "",
            )
