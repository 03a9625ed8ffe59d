"""The log of a replica: each change of its role is said once, in plain words; and what is wrong among the replicas."""

from __future__ import annotations

import logging

from kopf._coordination.leases import LEADER, Lease, Terms
from kopf._coordination.protocol import Replica
from kopf._logging.once import Once
from kopf._values.replica_state import ReplicaState
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots

logger = logging.getLogger(__name__)


class RoleLog:
    """Says what happens to one replica; ``place`` is the namespace and the name of the group."""

    def __init__(self, terms: Terms, place: str) -> None:
        self._terms = terms
        self._place = place
        self._said = ""
        self._is_failing = False
        self._warnings = Once(limit=100)

    def tell_role(self, state: ReplicaState, replica: Replica) -> None:
        """Say what the replica is now, if this has changed."""
        text = "" if state.is_fenced else self._describe(state, replica)
        if text and text != self._said:
            self._said = text
            logger.info("%s", text)

    def _describe(self, state: ReplicaState, replica: Replica) -> str:
        head = replica.sightings.head
        if replica.is_leaving or head is None:
            return ""
        is_concerned = self._terms.mode != LEADER or state.is_leading
        if is_concerned and replica.assignment is not None and replica.assignment.born and not state.held:
            return f"The lease {self._place} is new: waiting {self._terms.lease_duration:g} s for what was before it."
        if self._terms.mode != LEADER:
            if state.draining:
                return ""
            return f"Holding {len(state.held)} of {SLOT_COUNT} slots: {describe_slots(state.held)}."
        if state.is_leading and len(state.held) == SLOT_COUNT:
            return f"Leading as {state.identity}: the lease {self._place} is ours."
        if state.is_leading:
            what = "waiting until the replicas before it have left, or their leases have expired"
            return f"The lease {self._place} is ours; {what}." if state.wanted else ""
        holder = _get_identity(head.lease.holder)
        return f"Standing by: {self._terms.name} is led by {holder}." if holder else ""

    def tell_moves(self, slots: Slots, replica: Replica) -> None:
        """Say which slots are left, and in whose favour."""
        places = {} if replica.assignment is None else replica.assignment.places
        targets = sorted({_get_identity(place.target) for slot in slots if (place := places.get(slot))} - {""})
        logger.info("Handing over %d slots to %s.", len(slots), ", ".join(targets) or "the other replicas")

    def tell_stuck(self, slots: Slots) -> None:
        """Say which slots cannot be left yet."""
        if self._warnings.is_new(("stuck", slots)):
            text = "%d slots cannot be handed over yet, as synchronous handlers still run in threads there: %s."
            logger.warning(text, len(slots), describe_slots(slots))

    def tell_unreleased(self, slots: Slots) -> None:
        """Say why the lease is not released at the exit."""
        why = f"something still runs in the slots {describe_slots(slots)}" if slots else "the server does not answer"
        text = "The lease of this replica is not released, as %s. Others take over when it expires, in %g s."
        logger.warning(text, why, self._terms.lease_duration)

    def tell_fenced(self, reason: str) -> None:
        """Say that everything is stopped."""
        self._said = ""
        logger.error("Fenced: %s; everything is stopped.", reason)

    def tell_failure(self, problem: str) -> None:
        """Say that the server does not let us live; once until it does."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        logger.log(
            level, "A request about the leases of %s has failed, other attempts will be made: %s", self._place, problem
        )

    def tell_recovery(self) -> bool:
        """Note that the server answers; tell if it did not before."""
        was_failing, self._is_failing = self._is_failing, False
        return was_failing

    def check_handlers(self, lease: Lease) -> None:
        """Warn if the replica is of another operator, or of another version of this one; once for each."""
        other, terms = lease.report, self._terms
        if not lease.holder or not other.handlers or not terms.handlers or other.handlers == terms.handlers:
            return
        if self._warnings.is_new(("handlers", other.handlers)):
            logger.warning(
                "The replicas of %s have different handlers: this one is %s%s, there is also %s%s. This is fine while "
                "the operator is being updated. If these are two operators, each one needs its own name of the lease.",
                self._place,
                terms.identity,
                f" ({terms.version})" if terms.version else "",
                _get_identity(lease.holder),
                f" ({other.version})" if other.version else "",
            )


def _get_identity(holder: str) -> str:
    return holder.rpartition("_")[0] or holder
