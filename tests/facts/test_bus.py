"""The bus: facts are told to those who listen, and to nobody else; listeners cannot hurt."""

import logging

import pytest

from kopf._facts.bus import Bus, Fact
from kopf._facts.counters import Counters


class Rain(Fact, frozen=True, eq=False):
    depth: int


class Snow(Fact, frozen=True, eq=False):
    is_frequent = True


@pytest.fixture
def bus() -> Bus:
    return Bus()


def test_nobody_listens(bus: Bus) -> None:
    assert not bus.is_heard


def test_facts_are_told_in_the_order_of_subscription(bus: Bus) -> None:
    heard: list[tuple[str, int]] = []
    bus.subscribe(Rain, lambda fact: heard.append(("first", fact.depth)))
    bus.subscribe(Rain, lambda fact: heard.append(("second", fact.depth)))
    assert bus.is_heard
    bus.tell(Rain(1))
    bus.tell(Snow())
    assert heard == [("first", 1), ("second", 1)]


def test_those_who_leave_hear_nothing(bus: Bus) -> None:
    heard: list[Rain] = []
    bus.subscribe(Rain, heard.append)
    bus.subscribe(Snow, print)
    bus.unsubscribe(Rain, heard.append)
    bus.tell(Rain(1))
    assert not heard
    assert bus.is_heard
    bus.unsubscribe(Snow, print)
    assert not bus.is_heard


def test_what_is_frequent_is_asked_for_apart(bus: Bus) -> None:
    bus.subscribe(Rain, print)
    assert (bus.is_heard, bus.is_followed) == (True, False)
    bus.subscribe(Snow, print)
    assert (bus.is_heard, bus.is_followed) == (True, True)
    bus.unsubscribe(Snow, print)
    assert (bus.is_heard, bus.is_followed) == (True, False)


def test_those_who_count_hear_nothing(bus: Bus) -> None:
    def count(*_: object) -> None:
        pass

    bus.count(Counters(attempt=count, request=count, patch=count, echo=count, awaited=()))
    assert (bus.is_heard, bus.is_followed) == (True, False)
    bus.subscribe(Snow, print)
    bus.unsubscribe(Snow, print)
    assert (bus.is_heard, bus.is_followed) == (True, False)


def test_errors_of_listeners_are_logged_once_and_stop_nobody(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    def fail(fact: Rain) -> None:
        raise ValueError("too wet")

    heard: list[Rain] = []
    bus.subscribe(Rain, fail)
    bus.subscribe(Rain, heard.append)
    with caplog.at_level(logging.ERROR):
        bus.tell(Rain(1))
        bus.tell(Rain(2))
    assert len(heard) == 2
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["Who listens to Rain has failed: ValueError('too wet')"]


def test_errors_of_a_single_listener_are_logged(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    def fail(fact: Rain) -> None:
        raise ValueError("too wet")

    bus.subscribe(Rain, fail)
    bus.subscribe(Rain, print)
    bus.unsubscribe(Rain, print)
    with caplog.at_level(logging.ERROR):
        bus.tell(Rain(1))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["Who listens to Rain has failed: ValueError('too wet')"]


def test_endlessly_different_errors_are_not_remembered(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    def fail(fact: Rain) -> None:
        raise ValueError(fact.depth)

    bus.subscribe(Rain, fail)
    with caplog.at_level(logging.ERROR):
        for depth in range(1000):
            bus.tell(Rain(depth))
    assert len(caplog.records) == 100


def test_facts_are_told_apart_by_identity() -> None:
    one, two = Rain(1), Rain(1)
    assert one != two
    assert len({one, two}) == 2


def test_facts_that_nobody_listens_to_are_not_to_be_made() -> None:
    bus = Bus()
    bus.subscribe(Rain, print)
    assert Rain in bus.heard
    assert Snow not in bus.heard
    bus.unsubscribe(Rain, print)
    assert Rain not in bus.heard
