"""
Peering: what the operators know of each other, and what they make of it. No I/O, no clocks.

Every operator keeps a record of itself in a common object: its priority, when it was last seen, and for how long it is
to be considered alive since then. The alive operator with the highest priority works, all others are paused. If there
are several of those, all of them are paused, since nobody can know which one is meant to work.

The clocks of operators can differ, so they are only trusted for the records that were there before us. Once a record
changes or appears in front of our eyes, its operator is alive for its lifetime since that moment, by our own clock.
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
"""How long an operator is considered alive if it does not say that, in seconds."""

MAX_LIFETIME = 7 * 24 * 3600
"""How long an operator is considered alive at most, whatever it says, in seconds: others would be paused forever."""

_MAX_MESSAGE_LENGTH = 1000
_MAX_IDENTITY_LENGTH = 300
"""What is longer, is cut where it is shown."""


@dataclasses.dataclass(frozen=True, repr=False)
class Peer:
    """An operator as it is recorded."""

    identity: str
    priority: int
    lifetime: float
    """For how long it is alive since it was seen, in seconds."""
    lastseen: datetime.datetime
    message: str = ""
    """What it wants to say to the humans on the other side."""
    is_limited: bool = dataclasses.field(default=False, compare=False)
    """Whether it wanted to be considered alive for longer than it may."""
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
        """Read the record. Raises :class:`ValueError` if it makes no sense."""
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
        """Write the record."""
        lifetime = int(self.lifetime) if self.lifetime == int(self.lifetime) else self.lifetime
        record = {"priority": self.priority, "lifetime": lifetime, "lastseen": self.lastseen.isoformat()}
        optional = {"message": self.message, "group": self.group}
        return record | {key: value for key, value in optional.items() if value}


_MAX_SHOWN = 10


def show_peers(peers: Sequence[Peer]) -> str:
    """
    Describe the peers as in the logs, where the original framework has them like that, and others search for them.

    Not more than several of them: anybody who may write the records can make many.
    """
    return repr(list(peers[:_MAX_SHOWN])) + _count_rest(peers)


def _name_peer(peer: Peer) -> str:
    limit = f", its lifetime is limited to {peer.lifetime:.0f} s" if peer.is_limited else ""
    return f"{peer.identity[:_MAX_IDENTITY_LENGTH]} (priority {peer.priority}{limit})"


def name_peers(peers: Sequence[Peer]) -> str:
    """Describe the peers in words, not more than several of them."""
    names = [_name_peer(peer) for peer in peers[:_MAX_SHOWN]]
    return ", ".join(names) + _count_rest(peers)


def _count_rest(peers: Sequence[Peer]) -> str:
    return f" and {len(peers) - _MAX_SHOWN} more" if len(peers) > _MAX_SHOWN else ""


@dataclasses.dataclass(frozen=True)
class Standing:
    """How an operator stands among the alive ones."""

    seniors: tuple[Peer, ...] = ()
    """Those with higher priorities, in favour of which it pauses."""
    rivals: tuple[Peer, ...] = ()
    """Those with the same priority, with which it conflicts."""

    @property
    def is_paused(self) -> bool:
        """Whether the operator must not work."""
        return bool(self.seniors or self.rivals)

    @property
    def identities(self) -> tuple[frozenset[str], frozenset[str]]:
        """Who is concerned, regardless of when they were seen."""
        seniors, rivals = (frozenset(peer.identity for peer in peers) for peers in (self.seniors, self.rivals))
        return seniors, rivals


class Part(enum.Enum):
    """Which part the operator takes in the work, by the state of one peering object."""

    UNDECIDED = "it is not known yet"
    COMPARED = "it works or is paused by who else is there"
    DENIED = "it is paused, as it must take part, and is not permitted to"
    ABSENT = "it is paused, as there must be such an object, and there is none"
    ALONE = "it works, as there is nobody to look at"


def choose_part(*, is_present: bool | None, is_mandatory: bool, is_denied: bool, is_invisible: bool) -> Part:
    """
    Decide by whether there is such an object (``None`` if it is not known yet), and whether there must be one.

    ``is_denied`` is for those who may not put their records there, ``is_invisible`` for those who may not look at it.
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
    """When this record was seen for the first time."""
    deadline: float


class Peers:
    """All other operators in one peering object. The times are of the event loop, in seconds."""

    def __init__(self, identity: str, group: str = "") -> None:
        self._identity = identity
        self._group = group
        self._sightings: dict[str, _Sighting] = {}
        self._broken: dict[str, str] = {}
        self._is_looked_at = False
        self.has_us = False
        """Whether our own record is there, whatever it contains."""

    def take(self, status: object, *, now: datetime.datetime, time: float) -> Mapping[str, str]:
        """Look at the records as they are now. Give the problems of those that have just turned unreadable."""
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
        """Compare ourselves with those who are alive; our replicas are ourselves, with the highest priority of all."""
        alive = [sighting.peer for sighting in self._sightings.values() if sighting.deadline > time]
        others = [peer for peer in alive if not self._group or peer.group != self._group]
        highest = max([priority, *(peer.priority for peer in alive if peer not in others)])
        return Standing(
            seniors=tuple(peer for peer in others if peer.priority > highest),
            rivals=tuple(peer for peer in others if peer.priority == highest),
        )

    def get_deadline(self, peer: Peer) -> float:
        """When the peer is to be considered dead, unless it is seen again."""
        return self._sightings[peer.identity].deadline

    def get_next_death(self, *, time: float) -> float | None:
        """When the next of those who are alive is to be considered dead, unless it is seen again."""
        return min((item.deadline for item in self._sightings.values() if item.deadline > time), default=None)

    def get_remains(self, *, time: float) -> Iterable[str]:
        """
        Who is dead for sure, so that its record can be removed.

        If the clocks differ, an alive one can look dead at the first sight, so it gets one more lifetime to show up.
        """
        return [
            key
            for key, item in self._sightings.items()
            if max(item.since, item.deadline) + max(0.0, item.peer.lifetime) <= time
        ]
