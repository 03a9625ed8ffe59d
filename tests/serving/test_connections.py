"""Who goes when there are too many connections, and when: the table alone, with letters instead of connections."""

from __future__ import annotations

import pytest

from kopf._serving.connections import ConnectionTable, Stage

LIMIT = 4


def make_table(connections: dict[str, Stage | None], *, limit: int = LIMIT) -> ConnectionTable[str]:
    """Add them in this order, with deadlines in this order; ``None`` is for those whose requests are being handled."""
    table: ConnectionTable[str] = ConnectionTable(limit)
    for deadline, (connection, stage) in enumerate(connections.items()):
        table.add(connection, deadline)
        if stage is None:
            table.engage(connection)
        elif stage is not Stage.MUTE:
            table.advance(connection, stage)
    return table


@pytest.mark.parametrize(
    ("connections", "victim"),
    [
        ({}, None),
        ({"a": Stage.MUTE, "b": Stage.MUTE}, "a"),
        ({"a": Stage.REGULAR, "b": Stage.MUTE, "c": Stage.MUTE}, "b"),
        ({"a": Stage.MUTE, "b": Stage.GREETING, "c": Stage.GREETING}, "b"),
        ({"a": Stage.GREETING, "b": Stage.STRANGER, "c": Stage.STRANGER}, "b"),
        ({"a": Stage.STRANGER, "b": Stage.SENDER, "c": Stage.SENDER}, "b"),
        ({"a": Stage.MUTE, "b": Stage.REGULAR, "c": Stage.REGULAR}, "b"),
        ({"a": Stage.REGULAR, "b": Stage.MUTE}, "b"),
        ({"a": None, "b": None}, None),
        ({"a": None, "b": Stage.REGULAR}, "b"),
    ],
)
def test_the_oldest_one_of_the_largest_group_goes(connections: dict[str, Stage | None], victim: str | None) -> None:
    assert make_table(connections).find_evictable() == victim


def test_those_who_come_to_a_stage_are_the_youngest_there() -> None:
    table = make_table({"a": Stage.MUTE, "b": Stage.STRANGER, "c": Stage.STRANGER})
    table.advance("a", Stage.STRANGER)
    assert table.find_evictable() == "b"


def test_those_who_were_served_again_are_the_youngest() -> None:
    table = make_table({"a": Stage.REGULAR, "b": Stage.REGULAR})
    table.engage("a")
    table.silence("a", Stage.REGULAR, 10)
    assert table.find_evictable() == "b"


def test_nobody_gets_back_to_an_earlier_stage() -> None:
    table = make_table({"a": Stage.REGULAR, "b": Stage.SENDER, "c": Stage.SENDER})
    table.silence("a", Stage.SENDER, 10)  # the headers of the next request
    assert table.find_evictable() == "b"
    table.remove("b")
    table.remove("c")
    table.add("d", 11)
    table.silence("d", Stage.SENDER, 11)
    table.add("e", 12)
    table.silence("e", Stage.SENDER, 12)
    assert table.find_evictable() == "d"


def test_the_time_is_not_extended_by_halves_of_requests() -> None:
    table = make_table({"a": Stage.MUTE, "b": Stage.MUTE})
    table.advance("a", Stage.GREETING)
    table.advance("a", Stage.STRANGER)
    assert table.get_deadline() == 0
    assert table.list_expired(0) == ["a"]
    assert sorted(table.list_expired(1)) == ["a", "b"]


def test_there_is_no_deadline_for_those_who_are_served() -> None:
    table = make_table({"a": None})
    assert table.get_deadline() is None
    assert table.list_expired(100) == []
    table.silence("a", Stage.REGULAR, 7)
    assert table.get_deadline() == 7
    assert table.list_expired(6.9) == []
    assert table.list_expired(7) == ["a"]


@pytest.mark.parametrize(("limit", "is_full"), [(1, True), (2, True), (3, False)])
def test_those_who_are_served_count_too(limit: int, is_full: bool) -> None:
    table = make_table({"a": None, "b": Stage.MUTE}, limit=limit)
    assert table.is_full is is_full


def test_those_who_are_gone_are_forgotten() -> None:
    table = make_table({"a": None, "b": Stage.MUTE, "c": Stage.REGULAR})
    for connection in ("a", "b", "c", "c"):
        table.remove(connection)
    assert not any(table.advance(connection, Stage.REGULAR) for connection in "abc")
    assert table.find_evictable() is None
    assert table.get_deadline() is None


def test_the_mute_ones_are_listed() -> None:
    assert make_table({"a": Stage.MUTE, "b": Stage.GREETING, "c": Stage.MUTE}).list_mute() == ["a", "c"]
