"""The backlog: nothing is lost or mixed up, nothing is kept for long, and nobody is hurt by the errors of others."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from kopf._controller.observer import Observer, Observers
from kopf._insight.backlog import MAX_AGE, MAX_NOTES, MAX_WEIGHT, Backlog
from kopf._values.resources import Resource
from tests.patience import PATIENCE

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples")


def test_notes_wait_until_somebody_asks() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(10):
        backlog.note(processed.append, number)
    assert processed == []
    backlog.settle()
    assert processed == [*range(10)]


def test_only_so_many_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(MAX_NOTES):
        backlog.note(processed.append, number)
    assert len(processed) == MAX_NOTES


async def test_only_so_large_ones_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(3):
        backlog.note_heavy(MAX_WEIGHT // 2, processed.append, number)
    assert processed == [0, 1, 2]


def test_notes_about_notes_come_after_them() -> None:
    backlog, processed = Backlog(), list[str]()

    def process() -> None:
        backlog.note(processed.append, "inner")
        backlog.settle()
        processed.append("outer")

    backlog.note(process)
    backlog.settle()
    assert processed == ["outer", "inner"]


def test_errors_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    backlog, processed = Backlog(), list[int]()

    def fail() -> None:
        raise ValueError("oops")

    with caplog.at_level(logging.ERROR):
        for number in range(3):
            backlog.note(fail)
            backlog.note(processed.append, number)
        backlog.settle()
    assert processed == [0, 1, 2]
    assert caplog.text.count("An observer has failed in the backlog: ValueError('oops')") == 1


def test_threads_note_and_settle_together() -> None:
    backlog, processed = Backlog(), list[tuple[int, int]]()

    def work(who: int) -> None:
        for number in range(5000):
            backlog.note(processed.append, (who, number))
            if number % 100 == 0:
                backlog.settle()

    threads = [threading.Thread(target=work, args=[who]) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backlog.settle()
    for who in range(4):
        assert [number for one, number in processed if one == who] == [*range(5000)]


class Counting(Observer):
    """Has a time for each of what it is told, and can fail."""

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.told: list[tuple[str, float, float]] = []
        self.done = asyncio.Event()

    def object_queued(self, resource: Resource, key: str) -> None:
        if key == "bad":
            raise ValueError("oops")
        self.told.append((key, self.backlog.clock(), self.backlog.now))
        self.done.set()


@pytest.mark.fastforward
async def test_observers_are_told_soon_and_in_order() -> None:
    observers = Observers()
    backlog = Backlog(observers)
    one, another = Counting(backlog), Counting(backlog)
    backlog.add(one)
    backlog.add(another)
    for keys in (["a", "b"], ["c"]):
        one.done.clear()
        known = len(one.told)
        for key in keys:
            observers.object_queued(RESOURCE, key)
            assert len(one.told) == known
        await asyncio.wait_for(one.done.wait(), PATIENCE)
    assert [key for key, *_ in one.told] == [key for key, *_ in another.told] == ["a", "b", "c"]


async def test_times_are_those_when_it_was_told() -> None:
    observers, now = Observers(), 47.0
    observers.clock = lambda: now
    backlog = Backlog(observers, lambda: 950.0 + now)
    observer = Counting(backlog)
    backlog.add(observer)
    observers.object_queued(RESOURCE, "a")
    now = 49.0
    observers.object_queued(RESOURCE, "b")
    times: list[float] = []
    backlog.note(lambda: times.append(backlog.now))
    now = 60.0
    backlog.settle()
    assert observer.told == [("a", 47.0, 997.0), ("b", 49.0, 999.0)]
    assert times == [999.0]
    assert (backlog.clock(), backlog.now) == (60.0, 1010.0)


async def test_those_who_fail_do_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    backlog = Backlog(observers)
    one, another = Counting(backlog), Counting(backlog)
    backlog.add(one, another)
    observers.object_queued(RESOURCE, "bad")
    observers.object_queued(RESOURCE, "good")
    with caplog.at_level(logging.ERROR):
        backlog.settle()
    assert len(one.told) == len(another.told) == 1
    assert caplog.text.count("An observer has failed in object_queued: ValueError('oops')") == 1


def test_others_step_in_if_the_loop_is_blocked() -> None:
    now, observers, processed = 1000.0, Observers(), list[int]()
    observers.clock = lambda: now
    backlog = Backlog(observers, observers.clock)
    backlog.settle_old()
    backlog.note(processed.append, 1)
    now += MAX_AGE / 2
    backlog.settle_old()
    assert processed == []
    backlog.is_watched = True
    backlog.settle_old()
    assert processed == [1]
