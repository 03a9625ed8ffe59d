"""What the watcher's state machine makes of objects that move between the replicas of an operator."""

from __future__ import annotations

import pytest

from kopf._client.resources.watch_machine import LISTED, ForeignEvent, WatchEvent, WatchMachine, disown
from kopf._values.objects import KubeObject
from kopf._values.slots import ALL_SLOTS, Slots, get_slot
from tests.client import test_watch_machine
from tests.client.test_watch_machine import RESOURCE, Seen, summarise

UIDS = {"a": "1416ad50-145b-4106-9022-4d49c0422b60", "b": "fbfee208-d5f4-4cb4-bb89-e6b5a4368df6"}


def make(name: str, version: int, uid: str | None = None) -> KubeObject:
    return test_watch_machine.make(name, version, uid or UIDS[name])


A, B = make("a", 1), make("b", 2)
SLOT_A, SLOT_B = (frozenset({get_slot(item.head.uid)}) for item in (A, B))


class Sharing:
    """A machine that knows of its own objects only, or of all if it is ``whole``."""

    def __init__(self, slots: Slots, *, whole: bool) -> None:
        self.slots = slots
        self.events: list[WatchEvent] = []
        is_foreign = None if whole else lambda key: get_slot(key) not in self.slots
        self.machine = WatchMachine(RESOURCE, is_foreign=is_foreign)

    def list(self, *objects: KubeObject) -> list[Seen | str]:
        self.events = []
        self.machine.interrupt()
        self.machine.begin_listing()
        self.machine.take_page([*objects], "9", self.events)
        self.machine.finish_listing(self.events)
        return summarise(self.events)[:-1]

    def gain(self, slots: Slots) -> None:
        self.slots |= slots
        self.machine.gain(slots)

    def lose(self, slots: Slots) -> None:
        self.slots -= slots
        self.machine.lose(slots)


def test_they_are_different() -> None:
    assert SLOT_A != SLOT_B


def test_nothing_is_kept_of_foreign_objects() -> None:
    sharing = Sharing(SLOT_A, whole=False)
    assert sharing.list(A, B) == [(None, "a", A.head.uid, "1")]
    sharing.machine.take_object("MODIFIED", make("b", 3), sharing.events)
    sharing.machine.take_object("DELETED", make("b", 4), sharing.events)
    assert sharing.machine.version == "4"
    assert [event for event in sharing.events if event is not LISTED and event.object.head.name == "b"] == []
    assert len(sharing.machine) == 1


@pytest.mark.parametrize("whole", [False, True])
def test_gained_objects_are_as_in_the_initial_listing(*, whole: bool) -> None:
    sharing = Sharing(SLOT_A, whole=whole)
    sharing.list(A, B)
    sharing.gain(SLOT_B)
    assert sharing.list(make("a", 3), B) == [("MODIFIED", "a", A.head.uid, "3"), (None, "b", B.head.uid, "2")]
    assert sharing.list(make("a", 3), make("b", 4)) == [("MODIFIED", "b", B.head.uid, "4")]


@pytest.mark.parametrize("whole", [False, True])
def test_a_listing_that_fails_half_way_reports_them_once(*, whole: bool) -> None:
    sharing = Sharing(SLOT_A, whole=whole)
    sharing.list(A, B)
    sharing.gain(SLOT_B)
    sharing.machine.interrupt()
    sharing.machine.begin_listing()
    events: list[WatchEvent] = []
    sharing.machine.take_page([B], "9", events)
    assert [event.type for event in events] == [None]
    assert sharing.list(A, B) == []


@pytest.mark.parametrize("whole", [False, True])
def test_objects_that_were_lost_and_gained(*, whole: bool) -> None:
    sharing = Sharing(ALL_SLOTS, whole=whole)
    sharing.list(A, B)
    sharing.lose(SLOT_B)
    assert len(sharing.machine) == 1 + whole
    sharing.gain(SLOT_B)
    assert sharing.list(A, B) == [(None, "b", B.head.uid, "2")]


def test_gained_objects_that_are_gone_are_only_for_those_who_see_everything() -> None:
    sharing = Sharing(SLOT_A, whole=True)
    sharing.list(A, B)
    sharing.gain(SLOT_B)
    assert sharing.list() == [("DELETED", "a", A.head.uid, "1"), ("DELETED", "b", B.head.uid, "")]
    assert [type(event) for event in sharing.events] == [WatchEvent, ForeignEvent, WatchEvent]


def test_gained_objects_that_are_recreated() -> None:
    sharing = Sharing(SLOT_A, whole=True)
    sharing.list(A, B)
    new = make("b", 5, uid="another")
    sharing.gain(SLOT_B | {get_slot("another")})
    assert sharing.list(A, new) == [("DELETED", "b", B.head.uid, ""), (None, "b", "another", "5")]
    assert [type(event) for event in sharing.events[:2]] == [ForeignEvent, WatchEvent]


def test_losing_amid_a_listing() -> None:
    sharing = Sharing(ALL_SLOTS, whole=False)
    sharing.list(A, B)
    sharing.machine.interrupt()
    sharing.machine.begin_listing()
    sharing.lose(SLOT_B)
    events: list[WatchEvent] = []
    sharing.machine.finish_listing(events)
    assert summarise(events) == [("DELETED", "a", A.head.uid, "1"), "LISTED"]


def test_labels_are_remembered_over_a_move() -> None:
    machine = WatchMachine(RESOURCE, labels={"app"})
    events: list[WatchEvent] = []
    metadata = {"name": "a", "namespace": "ns", "uid": A.head.uid, "resourceVersion": "1", "labels": {"app": "x"}}
    machine.begin_listing()
    machine.take_page([KubeObject.from_dict({"metadata": metadata})], "1", events)
    machine.finish_listing(events)
    machine.interrupt()
    machine.gain(ALL_SLOTS)
    machine.begin_listing()
    machine.finish_listing(events)
    assert events[-2].object.head.labels == {"app": "x"}


def test_what_came_before_is_disowned() -> None:
    events = [WatchEvent("ADDED", A), LISTED, WatchEvent("MODIFIED", B)]
    disowned = disown(events, SLOT_B)
    assert [type(event) for event in disowned] == [WatchEvent, WatchEvent, ForeignEvent]
    assert disowned[1] is LISTED
