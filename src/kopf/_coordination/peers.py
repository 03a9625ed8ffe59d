"""
Peers: what operators know about each other, and their decisions. No I/O, no clocks.

Every operator keeps a record in a common object: its priority, the time when it was last seen, and its lifetime since
then. The live operator with the highest priority works, all others pause. If several have the highest priority, all of
them pause, since nobody can know which one should work.

The clocks of operators can differ, so they are trusted only for records from before the start of this operator. When a
record changes or appears later, its operator is alive for its lifetime since that moment, by our own clock.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._settings.settings import MAX_PRIORITY

_DEFAULT_LIFETIME = 60
"""The lifetime of records without one, in seconds."""

MAX_LIFETIME = 7 * 24 * 3600
"""The maximal lifetime, in seconds: longer ones could pause others forever."""

_MAX_MESSAGE_LENGTH = 1000
_MAX_IDENTITY_LENGTH = 300
"""The maximal lengths of shown texts, in characters."""


@dataclasses.dataclass(frozen=True, repr=False)
class Peer:
    """The record of an operator."""

    identity: str
    priority: int
    lifetime: float
    """How long it is alive after ``lastseen``, in seconds."""
    lastseen: datetime.datetime
    message: str = ""
    """A text for humans."""
    is_limited: bool = dataclasses.field(default=False, compare=False)
    """Whether the record has a longer lifetime than the maximum."""
    group: str = ""
    """The namespace and the name of the Lease if it is one of several replicas, which are one peer for the others."""

    def __post_init__(self) -> None:
        if abs(self.priority) > MAX_PRIORITY:
            raise ValueError(f"the priority is not within ±{MAX_PRIORITY}")

    def __repr__(self) -> str:
        lifetime = f"{self.lifetime:g}{' (limited)' if self.is_limited else ''}"
        fields = [f"priority={self.priority}", f"lifetime={lifetime}", f"lastseen={self.lastseen.isoformat()!r}"]
        fields += [f"message={self.message!r}"] if self.message else []
        return f"<Peer {self.identity[:_MAX_IDENTITY_LENGTH]}: {', '.join(fields)}>"

    @classmethod
    def parse(cls, identity: str, record: object) -> Peer:
        """Parse the record. Raises :class:`ValueError` if it makes no sense."""
        if not isinstance(record, Mapping):
            raise ValueError(f"expected an object, got {type(record).__name__}")
        try:
            lastseen = datetime.datetime.fromisoformat(record["lastseen"])
            if lastseen.tzinfo is None:
                lastseen = lastseen.replace(tzinfo=datetime.UTC)
            lifetime = float(record.get("lifetime", _DEFAULT_LIFETIME))
            if math.isnan(lifetime):
                raise ValueError("the lifetime is not a number")
            message = str(record.get("message", ""))[:_MAX_MESSAGE_LENGTH]
            priority, is_limited = int(record.get("priority", 0)), lifetime > MAX_LIFETIME
            group = str(record.get("group", ""))[:_MAX_IDENTITY_LENGTH]
            return cls(identity, priority, min(lifetime, MAX_LIFETIME), lastseen, message, is_limited, group)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as e:
            raise ValueError(f"{type(e).__name__}: {str(e)[:_MAX_MESSAGE_LENGTH]}") from e

    def make_record(self) -> dict[str, Any]:
        """Make the record."""
        lifetime = int(self.lifetime) if self.lifetime == int(self.lifetime) else self.lifetime
        record = {"priority": self.priority, "lifetime": lifetime, "lastseen": self.lastseen.isoformat()}
        optional = {"message": self.message, "group": self.group}
        return record | {key: value for key, value in optional.items() if value}


_MAX_SHOWN = 10


def show_peers(peers: Sequence[Peer]) -> str:
    """
    Describe the peers for the logs, in the form of the original framework, which log searches rely on.

    Only the first ones: anybody who may write records can make many.
    """
    return repr(list(peers[:_MAX_SHOWN])) + _count_rest(peers)


def _name_peer(peer: Peer) -> str:
    limit = f", its lifetime is limited to {peer.lifetime:.0f} s" if peer.is_limited else ""
    return f"{peer.identity[:_MAX_IDENTITY_LENGTH]} (priority {peer.priority}{limit})"


def name_peers(peers: Sequence[Peer]) -> str:
    """Describe the first peers in words."""
    names = [_name_peer(peer) for peer in peers[:_MAX_SHOWN]]
    return ", ".join(names) + _count_rest(peers)


def _count_rest(peers: Sequence[Peer]) -> str:
    return f" and {len(peers) - _MAX_SHOWN} more" if len(peers) > _MAX_SHOWN else ""


@dataclasses.dataclass(frozen=True)
class Standing:
    """The rank of an operator among the live ones."""

    seniors: tuple[Peer, ...] = ()
    """The peers with higher priorities, in favour of which it pauses."""
    rivals: tuple[Peer, ...] = ()
    """The peers with the same priority, which conflict with it."""

    @property
    def is_paused(self) -> bool:
        """Whether the operator must not work."""
        return bool(self.seniors or self.rivals)

    @property
    def identities(self) -> tuple[frozenset[str], frozenset[str]]:
        """The identities of both, regardless of their times."""
        seniors, rivals = (frozenset(peer.identity for peer in peers) for peers in (self.seniors, self.rivals))
        return seniors, rivals


class Part(enum.Enum):
    """The part of the operator in the work, by the state of one peering object."""

    UNDECIDED = "not known yet"
    COMPARED = "it works or pauses by the other records"
    DENIED = "it pauses, because it must take part, but is not permitted to"
    ABSENT = "it pauses, because the mandatory object does not exist"
    ALONE = "it works, because there is no peering object"


def choose_part(*, is_present: bool | None, is_mandatory: bool, is_denied: bool, is_invisible: bool) -> Part:
    """
    Decide by whether the object exists (``None`` if it is not known yet), and whether it is mandatory.

    ``is_denied``: the operator may not write its record; ``is_invisible``: it may not read the object.
    """
    if is_mandatory and is_denied:
        return Part.DENIED
    if is_present:
        return Part.COMPARED
    if is_present is None and not (is_denied and is_invisible):
        return Part.UNDECIDED
    return Part.ABSENT if is_mandatory else Part.ALONE


@dataclasses.dataclass
class _Sighting:
    peer: Peer
    since: float
    """When this record was first seen."""
    deadline: float


class Peers:
    """All other operators in one peering object. Times follow the clock of the event loop, in seconds."""

    def __init__(self, identity: str, group: str = "") -> None:
        self._identity = identity
        self._group = group
        self._sightings: dict[str, _Sighting] = {}
        self._broken: dict[str, str] = {}
        self._is_looked_at = False
        self.has_us = False
        """Whether our own record exists, with any content."""

    def take(self, status: object, *, now: datetime.datetime, time: float) -> Mapping[str, str]:
        """Accept the current records. Return the problems of newly unreadable ones."""
        records = status if isinstance(status, Mapping) else {}
        self.has_us = self._identity in records
        sightings: dict[str, _Sighting] = {}
        broken: dict[str, str] = {}
        for identity, record in records.items():
            if identity != self._identity:
                try:
                    peer = Peer.parse(identity, record)
                except ValueError as e:
                    broken[identity] = str(e)
                else:
                    sightings[identity] = self._sight(peer, now, time)
        problems = {identity: text for identity, text in broken.items() if self._broken.get(identity) != text}
        self._sightings, self._broken = sightings, broken
        self._is_looked_at = True
        return problems

    def _sight(self, peer: Peer, now: datetime.datetime, time: float) -> _Sighting:
        previous = self._sightings.get(peer.identity)
        if previous is not None and previous.peer == peer:
            return previous
        if self._is_looked_at:
            return _Sighting(peer, time, time + peer.lifetime)
        age = max(0.0, (now - peer.lastseen).total_seconds())
        return _Sighting(peer, time, time + peer.lifetime - age)

    def get_standing(self, priority: int, *, time: float) -> Standing:
        """Compare ourselves with live peers; our replicas count as ourselves, with the highest priority of all."""
        alive = [sighting.peer for sighting in self._sightings.values() if sighting.deadline > time]
        ours = [peer.priority for peer in alive if self._group and peer.group == self._group]
        others = [peer for peer in alive if not self._group or peer.group != self._group]
        highest = max([priority, *ours])
        return Standing(
            seniors=tuple(peer for peer in others if peer.priority > highest),
            rivals=tuple(peer for peer in others if peer.priority == highest),
        )

    def get_deadline(self, peer: Peer) -> float:
        """Return the time when the peer expires, unless it is seen again."""
        return self._sightings[peer.identity].deadline

    def get_next_death(self, *, time: float) -> float | None:
        """Return the time when the next live peer expires, unless it is seen again."""
        return min((item.deadline for item in self._sightings.values() if item.deadline > time), default=None)

    def get_remains(self, *, time: float) -> Iterable[str]:
        """
        List the peers that are certainly dead, so that their records can be removed.

        If the clocks differ, a live peer can look dead at first sight, so it gets one more lifetime to show up.
        """
        return [
            key
            for key, item in self._sightings.items()
            if max(item.since, item.deadline) + max(0.0, item.peer.lifetime) <= time
        ]
