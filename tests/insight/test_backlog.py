"""The backlog: nothing is lost or mixed up, nothing is kept for long, and nobody is hurt by the errors of others."""
from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from kopf._facts.bus import Bus, Fact
from kopf._insight.backlog import MAX_AGE, MAX_NOTES, MAX_WEIGHT, Backlog
from tests.patience import PATIENCE


def test_notes_wait_until_somebody_asks() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(10):
        backlog.note(processed.append, number)
    assert processed == []
    backlog.settle()
    assert processed == [*range(10)]


def test_times_are_those_of_the_notes() -> None:
    backlog, times = Backlog(), list[float]()
    began = time.time()
    backlog.note(lambda: times.append(backlog.now))
    noted = time.time()
    time.sleep(0.01)
    backlog.settle()
    assert began - 0.005 <= times[0] <= noted + 0.005  # it is told by two clocks
    assert backlog.now > noted


def test_only_so_many_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(MAX_NOTES):
        backlog.note(processed.append, number)
    assert len(processed) == MAX_NOTES


async def test_only_so_large_ones_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(3):
        backlog.note_fact(0.0, MAX_WEIGHT // 2, processed.append, number)
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
    assert caplog.text.count("cannot be noted: ValueError('oops')") == 1


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


class Something(Fact, frozen=True, eq=False):
    """A fact."""

    at: float = 0.0


async def test_facts_are_taken_soon_by_all_who_follow_them() -> None:
    bus, backlog, one, another = Bus(), Backlog(), list[Something](), list[Something]()
    done = asyncio.Event()
    backlog.follow(bus, Something, one.append)
    backlog.follow(bus, Something, another.append)
    backlog.follow(bus, Something, lambda fact: done.set())
    facts = [Something(), Something()]
    for number, fact in enumerate(facts, 1):
        bus.tell(fact)
        assert len(one) == number - 1
        await asyncio.wait_for(done.wait(), PATIENCE)
        done.clear()
        assert one == another == facts[:number]


class Passing(Something, frozen=True, eq=False):
    """A fact that others come right after."""


async def test_passing_facts_come_along_in_their_order() -> None:
    bus, backlog, taken, done = Bus(), Backlog(), list[Something](), asyncio.Event()
    backlog.follow(bus, Passing, taken.append, is_passing=True)
    backlog.follow(bus, Something, taken.append)
    backlog.follow(bus, Something, lambda fact: done.set())
    facts = [Passing(), Something(), Passing()]
    for fact in facts:
        bus.tell(fact)
    assert taken == []
    await asyncio.wait_for(done.wait(), PATIENCE)
    assert taken == facts


def test_facts_have_their_own_time() -> None:
    bus, backlog, times = Bus(), Backlog(lambda: 1000.0, lambda: 50.0), list[float]()
    backlog.follow(bus, Passing, lambda fact: times.append(backlog.now), is_passing=True)
    bus.tell(Passing(at=47.0))
    bus.tell(Passing(at=49.0))
    backlog.settle()
    assert times == [997.0, 999.0]


async def test_those_who_fail_do_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    bus, backlog, taken = Bus(), Backlog(), list[Something]()

    def fail(fact: Something) -> None:
        raise ValueError("oops")

    backlog.follow(bus, Something, fail)
    backlog.follow(bus, Something, taken.append)
    bus.tell(Something())
    with caplog.at_level(logging.ERROR):
        backlog.settle()
    assert len(taken) == 1
    assert "cannot be noted: ValueError('oops')" in caplog.text


def test_others_step_in_if_the_loop_is_blocked() -> None:
    now = 1000.0
    backlog, processed = Backlog(lambda: now, lambda: now), list[int]()
    backlog.settle_old()
    backlog.note(processed.append, 1)
    now += MAX_AGE / 2
    backlog.settle_old()
    assert processed == []
    backlog.is_watched = True
    backlog.settle_old()
    assert processed == [1]
