"""The survey of replicas: which ones exist, and which slots each of them owns, by their Leases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kopf._client.http.api import APIClient
from kopf._client.resources.listing import list_pages
from kopf._client.resources.targets import Target
from kopf._coordination.assignment import NO_REPORT, Place
from kopf._coordination.leases import GROUP_LABEL, LEADER, SHARDS, Lease, name_holder
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from kopf._values.records import FrozenRecord
from kopf._values.resources import LEASES
from kopf._values.slots import SLOT_COUNT, Slots, describe_slots, get_slot


class SurveyedReplica(FrozenRecord, frozen=True, kw_only=True):
    """One replica, as its Lease and the assignment tell."""

    name: str
    """Its name, e.g. that of the pod."""
    role: str
    """``leader``, ``coordinator``, or ``member``; ``gone`` if it owns slots, but has no Lease."""
    slots: Slots
    """The slots that it owns, even if they move away."""
    leaving: Slots
    """The owned slots that it must hand over."""
    arriving: Slots
    """The slots that others must hand over to it."""
    since: str
    """When it has got its Lease, by its own clock; like all times here, empty if unknown."""
    renewed: str
    duration: int
    """How long others take it for alive after ``renewed``, in seconds."""
    version: str
    is_leaving: bool
    """Whether it is exiting."""

    def as_json(self) -> dict[str, Any]:
        """Describe it for programs."""
        return {
            "name": self.name,
            "role": self.role,
            "share": len(self.slots) / SLOT_COUNT,
            "slots": describe_slots(self.slots),
            "leaving": describe_slots(self.leaving),
            "arriving": describe_slots(self.arriving),
            "since": self.since or None,
            "renewed": self.renewed or None,
            "duration": self.duration,
            "version": self.version or None,
            "exiting": self.is_leaving,
        }


class SurveyedGroup(FrozenRecord, frozen=True, kw_only=True):
    """All visible replicas of one operator. Standby replicas of a leader are invisible: they write nothing."""

    name: str
    namespace: str
    mode: str
    """``leader``, ``shards``, or empty if no Lease tells."""
    generation: int
    """The generation of the assignment; 0 if there is none."""
    replicas: Sequence[SurveyedReplica]
    places: Mapping[int, Place]
    holders: Collection[str]
    """The replicas that hold Leases; the others are gone, whatever the places say."""
    unowned: Slots
    """The slots without an owner."""

    def as_json(self) -> dict[str, Any]:
        """Describe it for programs."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "mode": self.mode or None,
            "generation": self.generation,
            "unowned": describe_slots(self.unowned),
            "replicas": [replica.as_json() for replica in self.replicas],
        }

    def describe_owner(self, uid: str) -> str:
        """Say which replica handles the object with this UID."""
        if self.mode == LEADER:
            leaders = [replica.name for replica in self.replicas if replica.role == LEADER]
            return f"the leader is {leaders[0]}" if leaders else "there is no leader now"
        slot = get_slot(uid)
        place = self.places.get(slot, Place())
        if place.owner not in self.holders:
            return f"slot {slot} of the object has no owner now"
        moving = f", and moves to {name_holder(place.target)}" if place.target else ""
        return f"slot {slot} of the object belongs to {name_holder(place.owner)}{moving}"


async def list_groups(
    api: APIClient, settings: OperatorSettings, namespace: str | None, name: str | None = None
) -> list[SurveyedGroup]:
    """
    List the groups of replicas by their Leases: in one namespace or in all; of one name or of any.

    Raises :class:`APIError`, :class:`APINetworkError`.
    """
    selector = GROUP_LABEL if name is None else f"{GROUP_LABEL}={name}"
    found: dict[tuple[str, str], list[KubeObject]] = {}
    async for page in list_pages(api, settings, Target(LEASES, namespace, {"labelSelector": selector})):
        for obj in page.objects:
            group = (obj.head.labels or {}).get(GROUP_LABEL, "")
            found.setdefault((obj.head.namespace or "", group), []).append(obj)
    return [make_group(*key, [Lease.parse(obj) for obj in objects]) for key, objects in sorted(found.items())]


def make_group(namespace: str, name: str, leases: Collection[Lease]) -> SurveyedGroup:
    """Combine the Leases of one group."""
    head = next((lease for lease in leases if lease.name == name), Lease(name=name))
    own = {lease.holder: lease for lease in leases if lease.holder and lease is not head}
    assignment = head.assignment
    places = {} if assignment is None else assignment.places
    if head.report.mode == LEADER and head.holder:
        own[head.holder] = head
    owners = {place.owner for place in places.values() if place.owner}
    replicas = [
        _make_replica(holder, own.get(holder), head, places)
        for holder in sorted(own.keys() | owners, key=lambda holder: (holder != head.holder, holder))
    ]
    return SurveyedGroup(
        name=name,
        namespace=namespace,
        mode=head.report.mode or (SHARDS if own else ""),
        generation=0 if assignment is None else assignment.generation,
        replicas=replicas,
        places=places,
        holders=own.keys(),
        unowned=frozenset(slot for slot in range(SLOT_COUNT) if not places.get(slot, Place()).owner),
    )


def _make_replica(holder: str, lease: Lease | None, head: Lease, places: Mapping[int, Place]) -> SurveyedReplica:
    role = (
        "gone" if lease is None else LEADER if lease is head else "coordinator" if holder == head.holder else "member"
    )
    report = NO_REPORT if lease is None else lease.report
    return SurveyedReplica(
        name=name_holder(holder),
        role=role,
        slots=frozenset(slot for slot, place in places.items() if place.owner == holder),
        leaving=frozenset(slot for slot, place in places.items() if place.owner == holder and place.target),
        arriving=frozenset(slot for slot, place in places.items() if place.target == holder),
        since="" if lease is None else lease.acquired,
        renewed="" if lease is None else lease.renewed,
        duration=0 if lease is None else lease.duration,
        version=report.version,
        is_leaving=report.is_leaving,
    )
