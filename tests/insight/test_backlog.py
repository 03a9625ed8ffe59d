"""The backlog: nothing is lost or mixed up, nothing is kept for long, and nobody is hurt by the errors of others."""
from __future__ import annotations

import logging
import threading
import time

import pytest

from kopf._insight.backlog import MAX_NOTES, MAX_WEIGHT, Backlog


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
    assert began <= times[0] <= noted
    assert backlog.now > noted


def test_only_so_many_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(MAX_NOTES):
        backlog.note(processed.append, number)
    assert len(processed) == MAX_NOTES


def test_only_so_large_ones_can_wait() -> None:
    backlog, processed = Backlog(), list[int]()
    for number in range(3):
        backlog.note(processed.append, number, weight=MAX_WEIGHT // 2)
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
