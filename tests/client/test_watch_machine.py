from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import booleans, integers, sampled_from

from kopf._client.resources.watch_machine import LISTED, State, WatchEvent, WatchMachine
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from tests.client.scripted import obj

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)

Seen = tuple[str | None, str, str, str]


def make(name: str, version: int, uid: str | None = None) -> KubeObject:
    return KubeObject.from_json(json.dumps(obj(name, version, uid)).encode())


def summarise(events: list[WatchEvent]) -> list[Seen | str]:
    return [
        "LISTED"
        if event is LISTED
        else (event.type, event.object.head.name, event.object.head.uid, event.object.head.resourceVersion)
        for event in events
    ]


class Steps:
    """A machine and the events of its last step."""

    def __init__(self, **options: Any) -> None:
        self.machine = WatchMachine(RESOURCE, **options)

    def relist(self, version: int, *pages: list[KubeObject]) -> list[Seen | str]:
        events: list[WatchEvent] = []
        self.machine.begin_listing()
        for page in pages:
            self.machine.take_page(page, str(version), events)
        self.machine.finish_listing(events)
        return summarise(events)

    def take(self, type_: Any, item: KubeObject) -> list[Seen | str]:
        events: list[WatchEvent] = []
        self.machine.take_object(type_, item, events)
        return summarise(events)

    def lose_all(self) -> list[WatchEvent]:
        """List once more, when nothing is there anymore."""
        events: list[WatchEvent] = []
        self.machine.expire()
        self.machine.begin_listing()
        self.machine.finish_listing(events)
        return events


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_initial_state(steps: Steps) -> None:
    assert steps.machine.state is State.EMPTY
    assert steps.machine.version is None
    assert len(steps.machine) == 0


def test_initial_listing(steps: Steps) -> None:
    assert steps.relist(10, [make("a", 1), make("b", 2)], [make("c", 3)]) == [
        (None, "a", "uid-a", "1"),
        (None, "b", "uid-b", "2"),
        (None, "c", "uid-c", "3"),
        "LISTED",
    ]
    assert steps.machine.state is State.WATCHING
    assert steps.machine.version == "10"
    assert len(steps.machine) == 3


def test_events_come_as_soon_as_the_page(steps: Steps) -> None:
    events: list[WatchEvent] = []
    steps.machine.begin_listing()
    steps.machine.take_page([make("a", 1)], "10", events)
    assert summarise(events) == [(None, "a", "uid-a", "1")]
    assert steps.machine.state is State.LISTING


def test_version_is_of_the_first_page(steps: Steps) -> None:
    # They are the same in one snapshot. If they were not, the changes since the first page must be replayed.
    events: list[WatchEvent] = []
    steps.machine.begin_listing()
    steps.machine.take_page([], "10", events)
    steps.machine.take_page([], "11", events)
    steps.machine.finish_listing(events)
    assert steps.machine.version == "10"


def test_events_of_the_stream(steps: Steps) -> None:
    steps.relist(10, [make("a", 1)])
    assert steps.take("ADDED", make("b", 11)) == [("ADDED", "b", "uid-b", "11")]
    assert steps.machine.version == "11"
    assert steps.take("MODIFIED", make("a", 12)) == [("MODIFIED", "a", "uid-a", "12")]
    assert steps.machine.version == "12"
    assert steps.take("DELETED", make("a", 13)) == [("DELETED", "a", "uid-a", "13")]
    assert steps.machine.version == "13"
    assert len(steps.machine) == 1


def test_same_state_is_not_repeated(steps: Steps) -> None:
    steps.relist(10, [make("a", 1)])
    assert steps.take("ADDED", make("a", 1)) == []
    assert steps.take("MODIFIED", make("a", 11)) == [("MODIFIED", "a", "uid-a", "11")]
    assert steps.take("MODIFIED", make("a", 11)) == []
    assert steps.machine.version == "11"


def test_what_has_come_already_is_ignored_if_versions_are_comparable() -> None:
    steps = Steps(comparable_versions=True)
    steps.relist(10, [make("a", 9)])
    assert steps.take("MODIFIED", make("a", 12)) == [("MODIFIED", "a", "uid-a", "12")]
    assert steps.take("MODIFIED", make("a", 11)) == []
    assert steps.take("ADDED", make("a", 9)) == []
    assert steps.take("DELETED", make("a", 13)) == [("DELETED", "a", "uid-a", "13")]
    assert steps.take("DELETED", make("a", 13)) == []
    assert steps.take("MODIFIED", make("a", 12)) == []
    assert steps.take("ADDED", make("b", 8)) == []
    assert steps.machine.version == "13"
    assert len(steps.machine) == 0
    steps.machine.take_bookmark("100")
    assert steps.take("ADDED", make("a", 99, "uid2")) == []
    assert steps.take("ADDED", make("a", 101, "uid2")) == [("ADDED", "a", "uid2", "101")]


def test_older_versions_after_a_listing_are_accepted() -> None:
    """The storage of a cluster can be restored from a backup: versions begin from there then."""
    steps = Steps(comparable_versions=True)
    steps.relist(100, [make("a", 99)])
    steps.machine.expire()
    assert steps.relist(50, [make("a", 49)]) == [("MODIFIED", "a", "uid-a", "49"), "LISTED"]
    assert steps.take("MODIFIED", make("a", 51)) == [("MODIFIED", "a", "uid-a", "51")]


@pytest.mark.parametrize("version", ["", "abc", "-5", "1.5"])
def test_versions_that_are_no_numbers_are_not_compared(version: str) -> None:
    steps = Steps(comparable_versions=True)
    steps.relist(10, [])
    content = obj("a", 1)
    content["metadata"]["resourceVersion"] = version
    item = KubeObject.from_json(json.dumps(content).encode())
    assert [event[0] for event in steps.take("ADDED", item)] == ["ADDED"]


@pytest.mark.parametrize(("version", "expected"), [("20", "20"), ("", "10")])
def test_bookmarks_move_the_version_only_if_they_have_one(steps: Steps, version: str, expected: str) -> None:
    steps.relist(10, [make("a", 1)])
    steps.machine.take_bookmark(version)
    assert steps.machine.version == expected
    assert steps.machine.state is State.WATCHING


@pytest.mark.parametrize(
    ("listed", "type_", "item", "expected"),
    [
        pytest.param([], "DELETED", make("a", 11), [("DELETED", "a", "uid-a", "11")], id="deletion-of-the-unknown"),
        pytest.param(
            [make("a", 9, "new")],
            "DELETED",
            make("a", 11, "old"),
            [("DELETED", "a", "old", "11")],
            id="late-deletion-before-a-recreation",
        ),
        pytest.param(
            [make("a", 1, "old")],
            "ADDED",
            make("a", 11, "new"),
            [("DELETED", "a", "old", "1"), ("ADDED", "a", "new", "11")],
            id="unnoticed-recreation",
        ),
        pytest.param(
            [make("a", 1, "u")],
            "MODIFIED",
            make("a", 11, "uu"),
            [("DELETED", "a", "u", "1"), ("MODIFIED", "a", "uu", "11")],
            id="similar-uids",
        ),
    ],
)
def test_events_of_other_uids_than_the_known_ones(
    steps: Steps, listed: list[KubeObject], type_: str, item: KubeObject, expected: list[Seen]
) -> None:
    steps.relist(10, listed)
    assert steps.take(type_, item) == expected
    assert len(steps.machine) == len(listed)


def test_expired_version(steps: Steps) -> None:
    steps.relist(10, [make("a", 1)])
    steps.machine.expire()
    assert steps.machine.state is State.EXPIRED
    assert steps.machine.version is None
    assert len(steps.machine) == 1


def test_repeated_listing_reports_differences_only(steps: Steps) -> None:
    steps.relist(10, [make("same", 1), make("changed", 2), make("vanished", 3), make("recreated", 4, "old")])
    steps.machine.expire()
    page = [make("changed", 12), make("new", 13), make("recreated", 14, "new"), make("same", 1)]
    assert steps.relist(20, page) == [
        ("MODIFIED", "changed", "uid-changed", "12"),
        ("ADDED", "new", "uid-new", "13"),
        ("DELETED", "recreated", "old", "4"),
        ("ADDED", "recreated", "new", "14"),
        ("DELETED", "vanished", "uid-vanished", "3"),
        "LISTED",
    ]
    assert steps.machine.version == "20"


def test_initial_listing_started_anew(steps: Steps) -> None:
    events: list[WatchEvent] = []
    steps.machine.begin_listing()
    steps.machine.take_page([make("same", 1), make("changed", 2), make("vanished", 3)], "10", events)
    assert steps.relist(20, [make("changed", 12), make("new", 13), make("same", 1)]) == [
        (None, "changed", "uid-changed", "12"),
        (None, "new", "uid-new", "13"),
        ("DELETED", "vanished", "uid-vanished", "3"),
        "LISTED",
    ]


def test_repeated_listing_started_anew(steps: Steps) -> None:
    steps.relist(10, [make("a", 1), make("b", 2)])
    steps.machine.expire()
    events: list[WatchEvent] = []
    steps.machine.begin_listing()
    steps.machine.take_page([make("a", 1), make("b", 2)], "20", events)
    assert events == []
    assert steps.relist(30, [make("b", 2)]) == [("DELETED", "a", "uid-a", "1"), "LISTED"]


def test_synthetic_deletions_have_the_identity(steps: Steps) -> None:
    steps.relist(10, [make("a", 1)])
    events = steps.lose_all()
    metadata = {"name": "a", "namespace": "ns", "uid": "uid-a", "resourceVersion": "1"}
    assert dict(events[0].object) == {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata}
    assert events[0].object.head.namespace == "ns"


def test_synthetic_deletions_have_what_is_filtered_by() -> None:
    steps = Steps(labels={"a", "b"}, annotations={"c"})
    metadata = {"name": "x", "uid": "u", "resourceVersion": "1"}
    steps.relist(
        1,
        [
            KubeObject.from_dict(
                {
                    "metadata": {**metadata, "labels": {"a": "1 2", "z": ""}, "annotations": {"c": "{}", "d": ""}},
                }
            ),
            KubeObject.from_dict({"metadata": {**metadata, "name": "y", "labels": {"z": ""}}}),
        ],
    )
    events = steps.lose_all()
    assert dict(events[0].object["metadata"]) == {**metadata, "labels": {"a": "1 2"}, "annotations": {"c": "{}"}}
    assert dict(events[1].object["metadata"]) == {**metadata, "name": "y"}


def test_synthetic_deletions_of_cluster_scoped_objects(steps: Steps) -> None:
    content = b'{"metadata":{"name":"x","uid":"u","resourceVersion":"1"}}'
    steps.relist(10, [KubeObject.from_json(content)])
    events = steps.lose_all()
    assert events[0].object.head.namespace is None
    assert "namespace" not in events[0].object["metadata"]


def test_namesakes_in_other_namespaces_are_different(steps: Steps) -> None:
    other = KubeObject.from_json(b'{"metadata":{"name":"a","namespace":"ns2","uid":"u2","resourceVersion":"2"}}')
    assert steps.relist(10, [make("a", 1), other]) == [(None, "a", "uid-a", "1"), (None, "a", "u2", "2"), "LISTED"]
    assert len(steps.machine) == 2


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        (lambda m: m.begin_listing(), {State.EMPTY, State.LISTING, State.EXPIRED}),
        (lambda m: m.take_page([], "1", []), {State.LISTING}),
        (lambda m: m.finish_listing([]), {State.LISTING}),
        (lambda m: m.take_object("DELETED", make("a", 1), []), {State.WATCHING, State.LISTING}),
        (lambda m: m.take_bookmark("1"), {State.WATCHING}),
        (lambda m: m.expire(), {State.WATCHING, State.EXPIRED}),
    ],
)
def test_transitions(state: State, action: Any, allowed: set[State]) -> None:
    machine = WatchMachine(RESOURCE)
    machine.state = state
    if state in allowed:
        action(machine)
    else:
        with pytest.raises(RuntimeError, match="wrong state"):
            action(machine)
        assert machine.state is state


class Cluster(RuleBasedStateMachine):
    """
    Any sequence of changes, streamed or missed, listings complete or not: the consumer sees the same as there
    is.

    The consumer is the simplest one: it keeps the last state of every uid as told by the events.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = WatchMachine(RESOURCE)
        self.version = 0
        self.objects: dict[str, tuple[str, int]] = {}  # what is there: name -> uid, version
        self.log: list[tuple[int, str, KubeObject]] = []
        self.seen: dict[str, int] = {}  # what is known to the consumer: uid -> version
        self.reported: set[tuple[str, int]] = set()
        self.is_listed = False

    @rule(name=sampled_from("abc"))
    def create_or_change(self, name: str) -> None:
        self.version += 1
        type_ = "MODIFIED" if name in self.objects else "ADDED"
        uid = self.objects[name][0] if name in self.objects else f"{name}{self.version}"
        self.objects[name] = (uid, self.version)
        self.log.append((self.version, type_, make(name, self.version, uid)))

    @rule(name=sampled_from("abc"))
    def delete(self, name: str) -> None:
        if name in self.objects:
            self.version += 1
            uid, _ = self.objects.pop(name)
            self.log.append((self.version, "DELETED", make(name, self.version, uid)))

    @precondition(lambda self: self.machine.state in (State.EMPTY, State.EXPIRED, State.LISTING))
    @rule(is_complete=booleans(), size=integers(1, 2))
    def list_everything(self, is_complete: bool, size: int) -> None:
        events: list[WatchEvent] = []
        items = [make(name, version, uid) for name, (uid, version) in sorted(self.objects.items())]
        self.machine.begin_listing()
        for start in range(0, len(items) or 1, size):
            self.machine.take_page(items[start : start + size], str(self.version), events)
            if not is_complete:
                break
        if is_complete:
            self.machine.finish_listing(events)
        self.consume(events)

    @precondition(lambda self: self.machine.state is State.WATCHING)
    @rule(count=integers(0, 5))
    def watch(self, count: int) -> None:
        events: list[WatchEvent] = []
        known = int(self.machine.version or 0)
        for version, type_, item in [entry for entry in self.log if entry[0] > known][:count]:
            self.machine.take_object(type_, item, events)  # type: ignore[arg-type]
            assert self.machine.version == str(version)
        self.consume(events)

    @precondition(lambda self: self.machine.state is State.WATCHING)
    @rule()
    def expire(self) -> None:
        self.machine.expire()

    def consume(self, events: list[WatchEvent]) -> None:
        for event in events:
            if event is LISTED:
                self.is_listed = True
                continue
            uid, version = event.object.head.uid, int(event.object.head.resourceVersion)
            if event.type == "DELETED":
                assert self.seen.pop(uid, None) is not None, "deleted, though never seen"
            else:
                assert event.type is not None or not self.is_listed, "as of the initial listing, again"
                assert (uid, version) not in self.reported, "reported twice"
                self.reported.add((uid, version))
                self.seen[uid] = version

    @invariant()
    def consumer_knows_what_there_is(self) -> None:
        if self.machine.state is State.WATCHING and self.machine.version == str(self.version):
            assert self.seen == dict(self.objects.values())


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
