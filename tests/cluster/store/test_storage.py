from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change, Compacted, Key, Record


def make_record(store: Store, key: Key, data: bytes = b"x") -> Record:
    return Record(key=key, revision=store.next_revision, data=data, uid="u", labels={}, fields={}, owners=())


def put(store: Store, name: str, namespace: str = "ns", data: bytes = b"x") -> Record:
    record = make_record(store, (namespace, name), data)
    store.put("things", record)
    return record


def remove(store: Store, name: str, namespace: str = "ns") -> None:
    store.remove("things", make_record(store, (namespace, name)))


def names(records: Iterable[Record]) -> list[str]:
    return [record.key[1] for record in records]


def test_records_are_ordered_by_namespace_and_name() -> None:
    store = Store()
    for namespace, name in [("b", "1"), ("a", "2"), ("a-b", "0"), ("a", "1"), ("", "9")]:
        put(store, name, namespace)
    keys = [record.key for record in store.bucket("things").select()]
    assert keys == [("", "9"), ("a", "1"), ("a", "2"), ("a-b", "0"), ("b", "1")]


def test_selection_by_namespace_takes_only_that_namespace() -> None:
    store = Store()
    for namespace, name in [("a", "1"), ("a", "2"), ("a-b", "0"), ("aa", "1"), ("", "9")]:
        put(store, name, namespace)
    bucket = store.bucket("things")
    assert names(bucket.select("a")) == ["1", "2"]
    assert names(bucket.select("a", after=("a", "1"))) == ["2"]
    assert bucket.count("a") == 2
    assert bucket.count(after=("a", "1")) == 3


def test_the_revision_is_shared_by_all_buckets() -> None:
    store = Store()
    first = make_record(store, ("", "x"))
    store.put("one", first)
    second = make_record(store, ("", "x"))
    store.put("two", second)
    assert second.revision == first.revision + 1 == store.revision


def test_a_record_of_a_wrong_revision_is_refused() -> None:
    store = Store()
    record = make_record(store, ("", "x"))
    store.put("things", record)
    with pytest.raises(ValueError, match="revision"):
        store.put("things", record)


def test_changes_tell_what_was_before() -> None:
    store = Store()
    start = store.revision
    first, second = put(store, "x"), put(store, "x")
    remove(store, "x")
    bucket = store.bucket("things")
    changes = bucket.read(bucket.position(start), 10)
    assert [(change.type, change.previous) for change in changes] == [
        ("ADDED", None),
        ("MODIFIED", first),
        ("DELETED", second),
    ]
    assert names(bucket.select()) == []


def test_observers_and_listeners_are_told_of_changes() -> None:
    store = Store()
    seen: list[tuple[str, str]] = []
    calls: list[None] = []
    store.observers.append(lambda bucket, change: seen.append((bucket, change.type)))
    store.bucket("things").listeners[lambda: calls.append(None)] = None
    put(store, "x")
    store.put("others", make_record(store, ("", "y")))
    assert seen == [("things", "ADDED"), ("others", "ADDED")]
    assert len(calls) == 1


def test_history_is_forgotten_beyond_its_limit() -> None:
    store = Store(history=10_000)
    start = store.revision
    for _ in range(1000):
        put(store, "x", data=b"x" * 500)
    bucket = store.bucket("things")
    with pytest.raises(Compacted) as error:
        bucket.position(start)
    assert error.value.requested == start
    assert error.value.oldest == bucket.compacted > start
    remembered = list(bucket.remembered())
    assert 0 < sum(change.weight for change in remembered) <= 10_000
    assert bucket.read(bucket.position(bucket.compacted), 1000) == remembered


def test_a_position_whose_changes_are_forgotten_meanwhile_is_refused() -> None:
    store = Store()
    bucket = store.bucket("things")
    position = bucket.position(store.revision)
    put(store, "x")
    store.compact()
    with pytest.raises(Compacted):
        bucket.read(position, 10)


def test_compaction_keeps_the_current_state() -> None:
    store = Store()
    put(store, "x")
    put(store, "x")
    store.compact()
    bucket = store.bucket("things")
    assert names(bucket.select()) == ["x"]
    assert bucket.read(bucket.position(store.revision), 10) == []
    with pytest.raises(Compacted):
        bucket.position(store.revision - 1)


def test_a_dropped_bucket_is_closed_and_its_history_is_not_counted() -> None:
    store = Store(history=5_000)
    bucket = store.bucket("things")
    put(store, "x", data=b"x" * 3000)
    woken: list[None] = []
    bucket.listeners[lambda: woken.append(None)] = None
    store.drop("things")
    assert bucket.closed
    assert woken
    start = store.revision
    store.put("others", make_record(store, ("", "y"), b"x" * 3000))
    assert len(list(store.bucket("others").remembered())) == 1
    assert store.bucket("others").position(start) == 0


operations = st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("abcdef")), max_size=60)


@given(operations, st.randoms(use_true_random=False))
def test_snapshots_show_every_remembered_moment(steps: list[tuple[str, str]], rnd: random.Random) -> None:
    store = Store(history=rnd.choice([3_000, 10_000, 10**9]))
    moments: dict[int, dict[str, int]] = {}
    current: dict[str, int] = {}
    for action, name in steps:
        if action == "put":
            current[name] = put(store, name).revision
        elif name in current:
            remove(store, name)
            del current[name]
        moments[store.revision] = dict(current)
    bucket = store.bucket("things")
    for revision, expected in moments.items():
        if revision < bucket.compacted:
            with pytest.raises(Compacted):
                list(bucket.snapshot(revision))
        else:
            snapshot = list(bucket.snapshot(revision))
            assert {record.key[1]: record.revision for record in snapshot} == expected
            assert names(snapshot) == sorted(expected)


@given(operations, st.integers(min_value=1, max_value=7))
def test_replaying_the_log_from_any_revision_gives_the_current_state(steps: list[tuple[str, str]], limit: int) -> None:
    store = Store(history=20_000)
    starts = [store.revision]
    for action, name in steps:
        if action == "put":
            put(store, name)
        elif ("ns", name) in store.bucket("things").records:
            remove(store, name)
        starts.append(store.revision)
    bucket = store.bucket("things")
    for start in starts:
        if start < bucket.compacted:
            continue
        state = {record.key: record.revision for record in bucket.snapshot(start)}
        position = bucket.position(start)
        replayed: list[Change] = []
        while changes := bucket.read(position, limit):
            replayed += changes
            position += len(changes)
        for change in replayed:
            if change.type == "DELETED":
                del state[change.record.key]
            else:
                state[change.record.key] = change.record.revision
        assert state == {record.key: record.revision for record in bucket.select()}
        assert [change.record.revision for change in replayed] == sorted(
            {change.record.revision for change in replayed}
        )
