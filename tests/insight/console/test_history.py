"""The history: bounded in all that can grow, whoever fills it; and what it tells of its changes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kopf._insight.backlog import Backlog
from kopf._insight.console.history import MAX_ENTRIES, MAX_GONE, History, ObjectRecord
from kopf._values.resources import Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
OTHER = Resource("", "v1", "secrets", "Secret", namespaced=True)


@pytest.fixture
def history() -> History:
    return History(Backlog())


def add(history: History, number: int, text: str = "it has happened", times: int = 1) -> ObjectRecord:
    record = history.obtain(KEX, f"uid-{number}", "default", f"obj-{number}")
    for _ in range(times):
        history.add(record, "seen", text)
    return record


def get_texts(history: History, id: int, after: int = 0) -> list[str]:
    return [entry[4] for entry in history.get_timeline(id, after) or ()]


def test_objects_are_told_apart_by_their_kinds(history: History) -> None:
    one, other = history.obtain(KEX, "uid", "default", "obj"), history.obtain(OTHER, "uid", "default", "obj")
    assert one is not other
    assert history.obtain(KEX, "uid", "default", "obj") is one
    assert history.find(OTHER, "uid") is other
    assert not one.kind.is_secret
    assert other.kind.is_secret


def test_timelines_are_read_from_where_they_were_left(history: History) -> None:
    record = add(history, 1, "first")
    last = (history.get_timeline(record.id) or [])[-1][0]
    add(history, 2, "of another")
    add(history, 1, "second")
    assert get_texts(history, record.id) == ["first", "second"]
    assert get_texts(history, record.id, after=last) == ["second"]
    assert history.get_timeline(12345) is None
    history.add(history.operator, "pause", "paused")
    assert get_texts(history, 0) == ["paused"]


def test_timelines_have_their_limit(history: History) -> None:
    record = add(history, 1, times=MAX_ENTRIES + 50)
    assert len(history.get_timeline(record.id) or ()) == MAX_ENTRIES
    size = history.size
    add(history, 1, times=1000)
    assert history.size == pytest.approx(size, rel=0.1)


def test_hostile_texts_do_not_blow_it() -> None:
    history = History(Backlog(), limit=2**20)
    for number in range(300):
        add(history, number, "\ud800<img src=x onerror=alert(1)>" * 100, times=20)
    assert history.size <= 2**20


def test_details_are_made_to_texts_when_somebody_looks(history: History) -> None:
    record = add(history, 1)
    history.add(record, "patch", "small", details={"changes": {"spec": {"a": 2}}, "before": {"spec": {"a": 1}}})
    history.add(record, "look", "small", details={"diff": [("change", ("spec", "a"), 1, 2)]})
    assert [entry[5] for entry in history.get_timeline(record.id) or () if len(entry) > 5] == [["~ spec.a: 1 → 2"]] * 2


def test_large_details_are_cut_at_once(history: History) -> None:
    record = add(history, 1)
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = {"a": deep}
    for value in ("x" * 10**6, deep, {str(number): number for number in range(10**4)}):
        history.add(record, "patch", "large", details={"changes": {"spec": {"a": value}}, "before": {}})
    assert record.size < 10_000
    assert [len(entry[5]) for entry in history.get_timeline(record.id) or () if len(entry) > 5] == [1, 1, 41]


def test_those_without_news_are_cut_first() -> None:
    history = History(Backlog(), limit=100_000)
    old, new = add(history, 1, "old", times=50), add(history, 2, "new", times=50)
    number = 3
    while len(history.get_timeline(old.id) or ()) == 50:
        add(history, number, times=10)
        number += 1
    assert get_texts(history, old.id) == ["old"] * 8
    assert get_texts(history, new.id) == ["new"] * 50


def test_more_objects_than_it_can_remember() -> None:
    history = History(Backlog(), limit=100_000)
    for number in range(1000):
        add(history, number)
    assert history.size <= 100_000
    assert len(history._records) + history.forgotten == 1000
    assert history.find(KEX, "uid-0") is None
    assert history.find(KEX, "uid-999") is not None


def test_ten_thousand_objects_take_two_kilobytes_each() -> None:
    tracemalloc.start()
    try:
        history = History(Backlog())
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2000):
            record = history.obtain(KEX, f"{number:036d}", "default", f"obj-{number}")
            for text in (
                "listed, version 12345",
                "creation: calls create_fn",
                "create_fn succeeded in 1.2 ms",
                "Handler 'create_fn' succeeded.",
                "MODIFIED, version 12346: own write, back after 1 ms",
            ):
                history.add(record, "seen", text)
            history.add(record, "patch", "the object is patched", details=["+ status.create_fn: {replicas: 1}"])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 2000 < 2048
    assert (after - before) / 2000 == pytest.approx(history.size / 2000, rel=0.3)


def test_changes_are_only_noted_for_those_who_look(history: History) -> None:
    record = add(history, 1)
    assert history.take_changes() == {}
    assert history.watch() == [record]
    other = add(history, 2, times=5)
    assert history.watch() == [record, other]  # those who come later, take nothing from the others
    assert history.take_changes() == {other.id: other}
    assert history.take_changes() == {}
    history.set_state(record, "handling", note="x" * 1000)
    assert len(record.note) == 200
    assert history.take_changes() == {record.id: record}
    history.unwatch()
    add(history, 3)
    assert history.take_changes() == {}


def test_deleted_objects_are_forgotten_at_last_unless_they_are_back(history: History) -> None:
    first, back = add(history, 0), add(history, MAX_GONE + 1)
    history.watch()
    for record in (first, back):
        history.set_state(record, "gone")
    history.set_state(back, "idle")
    for number in range(1, MAX_GONE + 1):
        history.set_state(add(history, number), "gone")
    assert history.find(KEX, "uid-0") is None
    assert history.take_changes()[first.id] is None
    assert history.find(KEX, back.key) is back
    assert len(history._records) == MAX_GONE + 1
