from __future__ import annotations

import dataclasses
from collections import Counter

import hypothesis
from hypothesis import strategies as st

from kopf._coordination.assignment import Assignment, Place, Report, Situation, plan
from kopf._values.slots import ALL_SLOTS

NOTHING = Assignment(generation=1, places=dict.fromkeys(sorted(ALL_SLOTS), Place()))
NAMES = [f"web-{number}_{number:08x}" for number in range(9)]

counts = st.integers(1, 8)


def situate(
    count: int, *, seen: int = 0, gone: tuple[str, ...] = (), can_move: bool = True, can_fill: bool = True
) -> Situation:
    members = [name for name in NAMES[:count] if name not in gone]
    reports = {name: Report(mode="shards", seen=seen) for name in members}
    return Situation(members=members, reports=reports, gone=gone, can_move=can_move, can_fill=can_fill)


def count_owners(assignment: Assignment) -> Counter[str]:
    return Counter(place.owner for place in assignment.places.values())


@hypothesis.given(counts)
def test_free_slots_are_given_out_equally_and_in_a_row(count: int) -> None:
    assignment = plan(NOTHING, situate(count), 2)
    owners = count_owners(assignment)
    assert set(owners) == set(NAMES[:count])
    assert max(owners.values()) - min(owners.values()) <= 1
    assert all(place.token == 2 for place in assignment.places.values())
    assert len(assignment.dump()) <= 1024


@hypothesis.given(counts)
def test_a_new_replica_gets_its_part_and_nothing_else_moves(count: int) -> None:
    old = plan(NOTHING, situate(count), 2)
    assert plan(old, situate(count + 1, can_move=False), 3) is old
    moving = plan(old, situate(count + 1), 3)
    moves = [place for place in moving.places.values() if place.target]
    assert all(place.target == NAMES[count] and place.since == 3 for place in moves)
    assert 0 < len(moves) <= len(ALL_SLOTS) // (count + 1) + 1
    assert plan(moving, situate(count + 1, seen=2), 4) is moving  # they have not seen it
    moved = plan(moving, situate(count + 1, seen=3), 4)
    owners = count_owners(moved)
    assert max(owners.values()) - min(owners.values()) <= 1
    assert not any(place.target for place in moved.places.values())
    assert {place.token for place in moved.places.values() if place.owner == NAMES[count]} == {4}


@hypothesis.given(st.integers(2, 9), st.data())
def test_slots_of_a_replica_that_is_gone_are_divided_and_nothing_else_moves(count: int, data: st.DataObject) -> None:
    old = plan(NOTHING, situate(count), 2)
    gone = data.draw(st.sampled_from(NAMES[:count]))
    new = plan(old, situate(count, gone=(gone,), can_move=False), 3)
    owners = count_owners(new)
    assert gone not in owners
    assert max(owners.values()) - min(owners.values()) <= 1
    assert all(new.places[slot] == place for slot, place in old.places.items() if place.owner != gone)


def test_slots_are_not_given_out_while_it_is_not_sure_that_they_are_free() -> None:
    fresh = Assignment(generation=1, born=1, places=NOTHING.places)
    assert plan(fresh, situate(3, can_fill=False), 2) is fresh
    assert plan(fresh, situate(3), 2).born == 0


def test_slots_that_somebody_still_holds_are_not_given_out() -> None:
    situation = situate(3)
    reports = {**situation.reports, NAMES[8]: Report(mode="shards", held=frozenset({7, 8}))}
    places = plan(NOTHING, dataclasses.replace(situation, reports=reports), 2).places
    assert {slot for slot, place in places.items() if not place.owner} == {7, 8}


def test_moves_to_one_that_is_gone_are_called_off() -> None:
    old = plan(NOTHING, situate(1), 2)
    moving = plan(old, situate(2), 3)
    assert plan(moving, situate(2, gone=(NAMES[1],)), 4).places == old.places


@hypothesis.given(counts, counts, st.booleans())
def test_assignments_are_read_as_they_are_written(before: int, after: int, can_move: bool) -> None:
    old = plan(NOTHING, situate(before), 2)
    assignment = plan(old, situate(after, gone=tuple(NAMES[after:before]), can_move=can_move), 3)
    assert Assignment.parse(assignment.dump()) == assignment
