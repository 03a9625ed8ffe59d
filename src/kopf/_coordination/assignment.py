"""
The assignment: which replica owns which slot, and where the slots move. No I/O, no clocks.

A slot moves only with the consent of its owner: the coordinator names the target, the owner reports that it has seen
this and does not hold the slot anymore, and only then the target becomes the owner. The slots of replicas that are
certainly gone are free; free slots get owners at once.

The generation of an assignment grows with every change, also if the assignment was lost and is made anew: it is never
less than the resource version of the Lease that it is written to. The generation in which an owner has got a slot is
the fencing token of the slot.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kopf._values import codec
from kopf._values.slots import ALL_SLOTS, Slots, describe_slots, parse_slots


@contextlib.contextmanager
def _naming_problems() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as e:
        raise ValueError(f"it is malformed: {e!r}") from e


class Place(NamedTuple):
    """The place of a slot, by the names of replicas; empty names are for none."""

    owner: str = ""
    token: int = 0
    """The generation in which the owner has got it."""
    target: str = ""
    """The replica that it moves to."""
    since: int = 0
    """The generation of the decision about this move."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a replica in its Lease."""

    mode: str = ""
    """``leader`` or ``shards``; empty for a stranger's Lease."""
    beat: int = 0
    """The number of the write, to find out which write has reached the server."""
    held: Slots = frozenset()
    """The slots that it handles, can begin to handle, or has not finished leaving."""
    seen: int = 0
    """The newest generation that it knows; ``held`` follows it."""
    is_leaving: bool = False
    former: str = ""
    """The replica that had this Lease before, and is certainly gone."""
    version: str = ""
    """The version of the operator, for humans."""
    handlers: str = ""
    """The fingerprint of the handlers."""

    def dump(self) -> str:
        """Serialise it as JSON, without default values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values = {name: value for name, value in values.items() if value} | {"held": describe_slots(self.held)}
        return codec.encode(values).decode()

    @classmethod
    def parse(cls, text: str) -> Report:
        """Read it. Raises :class:`ValueError` if it makes no sense."""
        with _naming_problems():
            values = dict(codec.decode(text.encode()))
            values["held"] = parse_slots(values["held"])
            return cls(**{name: type(default)(values.get(name, default)) for name, default in vars(NO_REPORT).items()})


NO_REPORT = Report()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """The decisions of the coordinator."""

    generation: int
    places: Mapping[int, Place]
    """The places of all slots."""
    born: int = 0
    """The generation in which it was made anew, until certainly nobody acts by an earlier one; then 0."""

    def get_slots(self, owner: str) -> Slots:
        """Return the slots that the replica must handle: it owns them, and they do not move away."""
        return frozenset(slot for slot, place in self.places.items() if place.owner == owner and not place.target)

    def get_token(self, slot: int, owner: str) -> int:
        """Return the fencing token of the slot if the replica owns it; otherwise, 0."""
        place = self.places[slot]
        return place.token if place.owner == owner else 0

    def dump(self) -> str:
        """Serialise it as compact JSON: each name once, and equal places together."""
        together: dict[Place, list[int]] = {}
        for slot, place in self.places.items():
            together.setdefault(place, []).append(slot)
        together.pop(Place(), None)
        names = sorted({name for place in together for name in (place.owner, place.target) if name})
        parts: list[list[Any]] = []
        for place, slots in together.items():
            move = [names.index(place.target), place.since] if place.target else []
            parts.append([names.index(place.owner), place.token, describe_slots(slots), *move])
        born = {"born": self.born} if self.born else {}
        return codec.encode({"generation": self.generation, **born, "replicas": names, "parts": parts}).decode()

    @classmethod
    def parse(cls, text: str) -> Assignment:
        """Read it. Raises :class:`ValueError` if it makes no sense."""
        with _naming_problems():
            values = dict(codec.decode(text.encode()))
            names = [str(name) for name in values["replicas"]]
            places = dict.fromkeys(sorted(ALL_SLOTS), Place())
            for index, token, slots, *move in values["parts"]:
                target, since = (names[move[0]], int(move[1])) if move else ("", 0)
                place = Place(names[index], int(token), target, since)
                places.update(dict.fromkeys(sorted(parse_slots(slots)), place))
            return cls(generation=int(values["generation"]), places=places, born=int(values.get("born", 0)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """The coordinator's knowledge about the replicas."""

    members: Sequence[str]
    """The replicas that can get slots."""
    reports: Mapping[str, Report]
    """The reports of all replicas that can have slots, even if they get no more."""
    gone: Collection[str]
    """The replicas that certainly do not act."""
    can_fill: bool = True
    """Whether free slots are certainly free."""
    can_move: bool = True
    """Whether to move slots between live replicas for balance."""


def plan(old: Assignment, situation: Situation, generation: int) -> Assignment:
    """Decide on the next assignment; return the old one if nothing changes."""
    places = {slot: _release(slot, place, situation) for slot, place in old.places.items()}
    destinations = _balance(places, situation)
    # In an assignment made anew, a free slot can be taken but not reported yet; it must be drained first.
    held = frozenset[int]().union(*(report.held for report in situation.reports.values()))
    for slot, place in places.items():
        destination = destinations.get(slot, "")
        if not place.owner:
            is_free = situation.can_fill and slot not in held
            places[slot] = Place(destination, generation) if destination and is_free else Place()
        elif destination == place.owner:
            places[slot] = Place(place.owner, place.token)
        elif destination and destination != place.target:
            places[slot] = Place(place.owner, place.token, destination, generation)
    born = 0 if situation.can_fill else old.born
    if places == old.places and born == old.born:
        return old
    return Assignment(generation=generation, places=places, born=born)


def _release(slot: int, place: Place, situation: Situation) -> Place:
    """Free the slot if its owner is gone, or has handed it over. The target is only a preference then."""
    if not place.owner:
        return Place()
    report = situation.reports.get(place.owner)
    if report is None:
        return Place() if place.owner in situation.gone else place
    is_left = place.target and report.seen >= place.since and slot not in report.held
    return Place(target=place.target) if is_left else place


def _balance(places: Mapping[int, Place], situation: Situation) -> Mapping[int, str]:
    """Choose the final owner of each slot: the current one, as far as the shares are equal within one slot."""
    members = situation.members
    if not members:
        return {}
    chosen = {slot: name for slot, place in places.items() if (name := place.target or place.owner) in members}
    for slot, place in places.items():
        if slot not in chosen and place.owner in members:
            chosen[slot] = place.owner  # the target is gone
    counts = Counter(dict.fromkeys(members, 0))
    counts.update(chosen.values())
    ranking = sorted(members, key=lambda name: (-counts[name], name))
    quota, extra = divmod(len(places), len(members))
    quotas = {name: quota + (rank < extra) for rank, name in enumerate(ranking)}
    if situation.can_move:
        for name in members:
            for slot in _choose_surplus(name, places, chosen, counts[name] - quotas[name]):
                del chosen[slot]
                counts[name] -= 1
    unplaced = [slot for slot in places if slot not in chosen]
    for name in reversed(ranking):
        room = max(0, quotas[name] - counts[name])
        chosen.update(dict.fromkeys(unplaced[:room], name))
        unplaced = unplaced[room:]
    return chosen


def _choose_surplus(name: str, places: Mapping[int, Place], chosen: Mapping[int, str], count: int) -> Iterator[int]:
    """Choose the surplus slots of a replica: first slots that it does not have yet, then the last ones."""
    slots = [slot for slot, destination in chosen.items() if destination == name]
    slots.sort(key=lambda slot: (places[slot].owner == name, -slot))
    yield from slots[: max(0, count)]
