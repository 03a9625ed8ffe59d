from __future__ import annotations

import datetime
from typing import Any

import pytest

from kopf._events import correlation
from kopf._events.correlation import COMBINED_PREFIX, EventCorrelator
from kopf._events.event_records import EventRecord, EventReport
from kopf._settings.settings import PostingSettings
from kopf._values.references import ObjectReference

WHEN = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


class Reporter:
    """Reports events about objects, and posts them at once, as if the cluster was infinitely fast."""

    def __init__(self, **settings: Any) -> None:
        unlimited = {"object_burst": 10_000, "total_burst": 10_000}
        self.correlator = EventCorrelator(PostingSettings(**{**unlimited, **settings}))
        self.now = 1000.0

    def report(
        self,
        message: str = "hello",
        *,
        name: str = "obj",
        type: str = "Normal",
        reason: str = "Any",
        is_explicit: bool = True,
        is_posted: bool = True,
    ) -> tuple[EventRecord, bool]:
        ref = ObjectReference(kind="KopfExample", name=name, namespace="ns", uid=f"uid-{name}")
        when = WHEN + datetime.timedelta(seconds=self.now)
        report = EventReport(ref, type, reason, message, backoffs=(), time=when, is_explicit=is_explicit)
        record, is_to_be_posted = self.correlator.accept(report, self.now)
        if is_posted:
            record.is_pending = False
        return record, is_to_be_posted


@pytest.mark.parametrize("other", [{"name": "x"}, {"type": "x"}, {"reason": "x"}, {"message": "x"}], ids=str)
def test_others_are_others(other: dict[str, str]) -> None:
    reporter = Reporter()
    assert reporter.report()[0] is not reporter.report(**other)[0]  # type: ignore[arg-type]  # they fit


def test_repeats_after_a_long_time_are_new() -> None:
    reporter = Reporter(aggregation_window=600)
    first, _ = reporter.report()
    reporter.now += 599
    assert reporter.report()[0] is first
    reporter.now += 599
    assert reporter.report()[0] is first
    reporter.now += 600
    assert reporter.report()[0] is not first


def test_repeats_of_what_is_not_posted_yet_are_posted_with_it() -> None:
    reporter = Reporter(object_burst=1)
    first, is_posted = reporter.report(is_posted=False)
    assert is_posted
    for _ in range(10):
        assert reporter.report(is_posted=False) == (first, False)
    assert first.is_pending
    assert first.count == 11


def test_too_many_different_messages_are_combined() -> None:
    reporter = Reporter(similar_limit=3)
    records = [reporter.report(f"message {i}")[0] for i in range(6)]
    assert [record.latest.message for record in records[:3]] == ["message 0", "message 1", "message 2"]
    assert records[3] is records[4] is records[5]
    assert records[5].latest.message == COMBINED_PREFIX + "message 5"
    assert records[5].count == 3
    assert reporter.report("message 1")[0] is records[1]
    assert reporter.report("message 5", name="other")[0].latest.message == "message 5"
    assert reporter.report("message 5", reason="Other")[0].latest.message == "message 5"
    reporter.now += 600
    assert reporter.report("message 5")[0].latest.message == "message 5"


def test_what_is_over_the_budget_is_counted_nevertheless() -> None:
    reporter = Reporter(object_burst=1, object_rate=0.1)
    assert reporter.report()[1]
    for _ in range(10):
        assert not reporter.report()[1]
    reporter.now += 10
    record, is_posted = reporter.report()
    assert is_posted
    assert record.count == 12


def test_the_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlation, "CAPACITY", 10)
    reporter = Reporter()
    first, _ = reporter.report(name="often")
    for i in range(100):
        reporter.report(name=f"obj{i}")
        assert reporter.report(name="often")[0] is first
    correlator = reporter.correlator
    for cache in (correlator._records, correlator._messages, correlator._budgets._of_objects):
        assert len(cache) == 10
    assert first.count == 101


def test_what_is_too_old_to_be_counted_is_forgotten() -> None:
    reporter = Reporter(aggregation_window=60)
    for number in range(10):
        reporter.report(name=f"obj-{number}")
    reporter.now += 30
    kept, _ = reporter.report(name="obj-1")
    reporter.now += 30
    last, _ = reporter.report(name="another")
    assert [*reporter.correlator._records.values()] == [kept, last]
    assert len(reporter.correlator._messages) == 2
