"""The observers: each is told what it has a method for, and nothing else; they cannot hurt."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kopf._client.client_observer import Headers
from kopf._controller.observer import Observer, Observers
from kopf._values.resources import Resource

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples")


class Queued(Observer):
    def __init__(self, told: list[str], name: str = "") -> None:
        self.told = told
        self.name = name

    def object_queued(self, resource: Resource, key: str) -> None:
        self.told.append(f"{self.name}{key}")


class Failing(Observer):
    def object_queued(self, resource: Resource, key: str) -> None:
        raise ValueError(key)


def test_nobody_observes() -> None:
    observers = Observers()
    observers.object_queued(RESOURCE, "key")
    assert observers.request_begun("GET", "/", "", {"a": "b"}) == {"a": "b"}


def test_all_are_told_in_their_order() -> None:
    observers, told = Observers(), list[str]()
    observers.add(Queued(told, "one "), Observer())
    observers.add(Queued(told, "two "))
    observers.object_queued(RESOURCE, "key")
    observers.event_dropped("limit")
    assert told == ["one key", "two key"]


def test_those_who_leave_are_told_nothing() -> None:
    observers, told = Observers(), list[str]()
    one, two = Queued(told, "one "), Queued(told, "two ")
    observers.add(one, two)
    observers.remove(one)
    observers.object_queued(RESOURCE, "key")
    observers.remove(two)
    observers.object_queued(RESOURCE, "key")
    assert told == ["two key"]


def test_what_nobody_has_a_method_for_is_as_without_observers() -> None:
    observers = Observers()
    observers.add(Queued([]))
    assert "object_queued" in vars(observers)
    assert "pass_ended" not in vars(observers)


@pytest.mark.parametrize("others", [0, 1])
def test_errors_are_logged_once_and_stop_nobody(caplog: pytest.LogCaptureFixture, others: int) -> None:
    observers, told = Observers(), list[str]()
    observers.add(Failing(), *[Queued(told)] * others)
    with caplog.at_level(logging.ERROR):
        observers.object_queued(RESOURCE, "key")
        observers.object_queued(RESOURCE, "key")
    assert len(told) == 2 * others
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["An observer has failed in object_queued: ValueError('key')"]


def test_endlessly_different_errors_are_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    observers.add(Failing())
    with caplog.at_level(logging.ERROR):
        for number in range(1000):
            observers.object_queued(RESOURCE, str(number))
    assert len(caplog.records) == 100


class Marking(Observer):
    def __init__(self, name: str) -> None:
        self.name = name

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        if self.name == "bad":
            raise ValueError(target)
        marks: Mapping[str, Any] = headers or {}
        return {**marks, self.name: "yes"}


def test_each_adds_to_the_headers(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    observers.add(Marking("a"), Marking("bad"), Queued([]), Marking("b"))
    assert observers.request_begun("GET", "/", "", None) == {"a": "yes", "b": "yes"}
    assert "An observer has failed in request_begun" in caplog.text
