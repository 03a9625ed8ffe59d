"""The state of an object: which transition leads where. No waiting, no cluster: times are numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from kopf._controller.changes.object_memory import Result, SavedProgress, Unsaved
from kopf._controller.object_state import ObjectState, Rules
from kopf._controller.throttling import get_delay, is_overtaking
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason

KNOWN = SavedProgress(Reason.CREATE, {}, None)
UNSAVED = Unsaved(Reason.CREATE, {}, Patch())


def make_rules(*, comparable: bool = False, delays: Iterable[float] = (10, 20)) -> Rules:
    return Rules(comparable_versions=comparable, consistency_timeout=5, error_delays=delays)


def make(version: int = 1, *, generation: int | None = 1, deleted: bool = False) -> KubeObject:
    metadata: dict[str, Any] = {"name": "obj", "uid": "uid1", "resourceVersion": str(version), "generation": generation}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return KubeObject.from_dict({"metadata": metadata})


def start(state: ObjectState, obj: KubeObject) -> KubeObject:
    """Let the object come, and begin to handle it."""
    state.on_event(obj, 0)
    assert state.on_start() is obj
    return obj


def fail(state: ObjectState, obj: KubeObject, *, times: int = 1, now: float = 0) -> None:
    """Let the object come, and its handling fail."""
    start(state, obj)
    for _ in range(times):
        state.on_failure(obj, now)


def write(state: ObjectState, version: int, *, now: float = 0) -> None:
    """Let the object be handled with a write, of which only the echo is to come."""
    start(state, make(1))
    assert state.on_response(make(1), make(version), now) is True
    state.on_result(Result(make(version), changed=True, settled=True), now)


def is_ready(state: ObjectState) -> bool:
    return state.is_ready


def get_alarm(state: ObjectState) -> float | None:
    return state.alarm


@pytest.fixture
def state() -> ObjectState:
    return ObjectState(make_rules())


def test_nothing_is_to_be_done_at_first(state: ObjectState) -> None:
    assert state.is_idle
    assert not is_ready(state)
    assert get_alarm(state) is None
    with pytest.raises(RuntimeError, match="nothing to handle"):
        state.on_start()


def test_nothing_is_remembered_at_first(state: ObjectState) -> None:
    memory = state.memory
    assert state.last_seen is None
    assert (memory.initial, memory.unsaved, memory.saved, memory.baseline) == (False, None, None, None)
    assert (memory.errors, memory.conflicts) == (0, 0)


def test_an_event_is_to_be_handled(state: ObjectState) -> None:
    assert state.on_event(make(1), 0) is True
    assert is_ready(state)
    assert not state.is_idle
    assert not state.memory.initial


def test_only_the_latest_state_counts(state: ObjectState) -> None:
    for version in (1, 2, 3):
        state.on_event(make(version), 0)
    assert state.on_start() == make(3)
    assert not is_ready(state)
    assert not state.is_idle


def test_an_object_of_the_first_listing_is_remembered_as_such_until_it_is_resumed(state: ObjectState) -> None:
    state.on_event(make(1), 0, initial=True)
    called = state.memory.called
    state.on_event(make(2), 0)
    obj = state.on_start()
    seen = []
    for result in [Result(obj, resumed=True, error=ValueError()), Result(obj), Result(obj, resumed=True)]:
        state.on_result(result, 0)
        seen.append((state.memory.initial, state.memory.called is called, state.is_idle))
    assert called == set()
    assert seen == [(True, True, False), (True, True, False), (False, False, True)]
    assert state.memory.called is None


# What is next when the handling is over: at once, later, or never.


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(make(1)), "never"),
        (Result(make(1), requeue_after=7), "later"),
        (Result(make(1), requeue_after=0), "later"),
        (Result(make(2), changed=True), "at once"),
        (Result(make(2), changed=True, requeue_after=7), "at once"),
        (Result(make(2), changed=True, settled=True), "never"),
        (Result(make(2), changed=True, settled=True, requeue_after=7), "later"),
        (Result(None), "never"),
        (Result(None, requeue_after=7), "never"),
        (Result(make(1), error=ValueError(), requeue_after=7), "never"),
    ],
)
def test_the_result_tells_when_to_go_on(state: ObjectState, result: Result, expected: str) -> None:
    start(state, make(1))
    state.on_result(result, 100)
    assert is_ready(state) is (expected == "at once")
    assert get_alarm(state) == (100 + (result.requeue_after or 0) if expected == "later" else None)
    assert state.is_idle is (expected == "never")
    if expected == "at once":
        assert state.pending is result.obj


def test_a_newer_state_is_handled_instead_of_what_the_result_says(state: ObjectState) -> None:
    start(state, make(1))
    state.on_event(make(5), 0)
    state.on_result(Result(make(1), requeue_after=7, saved=KNOWN), 100)
    assert is_ready(state)
    assert get_alarm(state) is None
    assert state.pending == make(5)
    assert state.memory.saved is None


def test_when_the_object_is_gone_what_has_come_meanwhile_is_older(state: ObjectState) -> None:
    start(state, make(1))
    state.on_event(make(2), 0)
    state.on_result(Result(None), 0)
    assert state.is_idle


def test_the_saved_progress_is_passed_on_with_the_very_state_that_has_it(state: ObjectState) -> None:
    start(state, make(1))
    state.on_result(Result(make(2), changed=True, saved=KNOWN), 0)
    assert state.memory.saved is KNOWN
    state.on_event(make(3), 0)
    assert state.memory.saved is None


def test_what_was_delayed_goes_on_in_time_from_where_it_was(state: ObjectState) -> None:
    start(state, make(1))
    state.on_result(Result(make(2), requeue_after=7), 100)
    state.on_time(106)
    assert not is_ready(state)
    state.on_time(107)
    assert is_ready(state)
    assert get_alarm(state) is None
    assert state.on_start() == make(2)


def test_a_new_state_interrupts_the_delay(state: ObjectState) -> None:
    start(state, make(1))
    state.on_result(Result(make(1), requeue_after=7), 100)
    state.on_event(make(2), 101)
    assert is_ready(state)
    assert get_alarm(state) is None


# Errors.


def test_the_delays_grow_with_the_errors_and_the_last_one_is_repeated(state: ObjectState) -> None:
    obj = start(state, make(1))
    assert [state.on_failure(obj, 100) for _ in range(4)] == [10, 20, 20, 20]
    assert get_alarm(state) == 120
    assert not is_ready(state)
    assert not state.is_idle


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        ((), [0, 0]),
        ((3,), [3, 3]),
        (itertools.repeat(4), [4, 4]),
        (range(1, 9), [1, 2]),
    ],
)
def test_delays_can_be_anything_that_can_be_iterated_over(delays: Iterable[float], expected: list[float]) -> None:
    assert [get_delay(delays, errors) for errors in (0, 1, 2)] == [0, *expected]


def test_a_success_resets_the_errors_and_an_error_in_the_result_does_not(state: ObjectState) -> None:
    obj = start(state, make(1))
    state.on_failure(obj, 0)
    state.on_result(Result(obj, error=ValueError()), 0)
    assert state.memory.errors == 1
    state.on_result(Result(obj), 0)
    assert state.memory.errors == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (make(1), make(2), False),
        (make(1), make(2, generation=2), True),
        (make(1), make(2, deleted=True), True),
        (make(1, deleted=True), make(2, deleted=True), False),
        (make(1, deleted=True), make(2, generation=2, deleted=True), True),
        (make(1, deleted=True), make(2), False),
        (make(1, generation=None), make(2, generation=None), False),
        (make(1, generation=None), make(2, generation=None, deleted=True), True),
    ],
)
def test_after_errors_only_deletions_and_edits_interrupt_the_delay(
    state: ObjectState,
    old: KubeObject,
    new: KubeObject,
    expected: bool,
) -> None:
    assert is_overtaking(new, old) is expected
    fail(state, old)
    state.on_event(new, 1)
    assert is_ready(state) is expected
    assert get_alarm(state) == (None if expected else 10)
    state.on_time(10)
    assert state.on_start() is new


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (make(2), False),
        (make(2, generation=2), True),
        (make(2, deleted=True), True),
    ],
)
def test_what_comes_during_the_failing_handling_overtakes_the_delay_too(
    state: ObjectState,
    new: KubeObject,
    expected: bool,
) -> None:
    obj = start(state, make(1))
    state.on_event(new, 1)
    assert state.on_failure(obj, 1) == 10
    assert is_ready(state) is expected
    state.on_time(11)
    assert state.pending is new


# Conflicts.


def test_the_first_conflict_is_not_a_failure(state: ObjectState) -> None:
    obj = start(state, make(1))
    assert state.on_failure(obj, 100, is_conflict=True) is None
    assert (state.memory.conflicts, state.memory.errors) == (1, 0)
    assert get_alarm(state) == 110
    state.on_event(make(2), 101)
    assert is_ready(state)


def test_after_a_conflict_the_state_that_has_come_meanwhile_is_handled_at_once(state: ObjectState) -> None:
    obj = start(state, make(1))
    state.on_event(make(2), 0)
    assert state.on_failure(obj, 100, is_conflict=True) is None
    assert is_ready(state)


def test_conflicts_with_no_news_in_between_are_failures(state: ObjectState) -> None:
    obj = start(state, make(1))
    conflicts = [state.on_failure(obj, 0, is_conflict=True) for _ in range(3)]
    assert conflicts == [None, 10, 20]
    assert state.memory.errors == 2


@pytest.mark.parametrize("is_last", [True, False])
def test_the_news_are_the_cure_of_conflicts_however_many_there_were(state: ObjectState, is_last: bool) -> None:
    obj = start(state, make(1, deleted=True))
    for is_conflict in (True, True, is_last):
        state.on_failure(obj, 0, is_conflict=is_conflict)
    state.on_event(make(2, deleted=True), 1)
    assert is_ready(state) is is_last


def test_the_news_that_have_come_during_a_repeated_conflict_are_handled_at_once(state: ObjectState) -> None:
    obj = start(state, make(1))
    state.on_failure(obj, 0, is_conflict=True)
    state.on_time(10)
    state.on_start()
    state.on_event(make(2), 11)
    assert state.on_failure(obj, 12, is_conflict=True) is None
    assert is_ready(state)


@pytest.mark.parametrize("is_success", [True, False])
def test_after_news_or_a_success_a_conflict_is_the_first_one_again(state: ObjectState, is_success: bool) -> None:
    obj = start(state, make(1))
    state.on_failure(obj, 0, is_conflict=True)
    if is_success:
        state.on_result(Result(obj), 0)
    else:
        state.on_event(make(2), 0)
    assert state.on_failure(obj, 0, is_conflict=True) is None


# Own writes.


def test_what_was_called_since_the_first_listing_is_known_after_another_listing(state: ObjectState) -> None:
    state.on_event(make(1), 0, initial=True)
    assert state.memory.called == set()
    state.memory.called.add(HandlerId("one"))
    state.on_event(make(2), 0, initial=True)
    assert state.memory.called == {"one"}


@pytest.mark.parametrize("comparable", [True, False])
def test_a_write_that_changes_nothing_has_no_echo(comparable: bool) -> None:
    state = ObjectState(make_rules(comparable=comparable))
    write(state, 1)
    assert state.is_idle


@pytest.mark.parametrize(("version", "is_latest"), [(2, True), (3, True), (4, False)])
def test_comparable_versions_tell_if_what_waits_is_newer_than_the_response(version: int, is_latest: bool) -> None:
    state = ObjectState(make_rules(comparable=True))
    start(state, make(1))
    state.on_event(make(version), 0)
    assert state.on_response(make(1), make(3), 0) is is_latest
    assert state.pending == (None if is_latest else make(version))


@pytest.mark.parametrize("comparable", [True, False])
def test_the_echo_of_our_own_write_is_not_handled(comparable: bool) -> None:
    state = ObjectState(make_rules(comparable=comparable))
    write(state, 2)
    assert not state.is_idle  # the echo is to be recognised
    assert state.on_event(make(2), 0) is False
    assert not is_ready(state)
    assert state.is_idle


@pytest.mark.parametrize("comparable", [True, False])
def test_what_comes_after_the_echo_is_handled(comparable: bool) -> None:
    state = ObjectState(make_rules(comparable=comparable))
    write(state, 3)
    assert [state.on_event(make(version), 0) for version in (2, 3, 4)] == [False, False, True]
    assert state.pending == make(4)


def test_comparable_versions_need_neither_the_echo_nor_the_time() -> None:
    state = ObjectState(make_rules(comparable=True))
    write(state, 5)
    assert state.on_event(make(4), 0) is False
    assert get_alarm(state) is None
    assert state.on_event(make(6), 0) is True


def test_what_has_come_before_the_response_is_older_than_it(state: ObjectState) -> None:
    start(state, make(1))
    state.on_event(make(2), 0)
    assert state.on_response(make(1), make(3), 0) is True
    state.on_result(Result(make(3), changed=True), 0)
    assert state.pending == make(3)


def test_what_has_come_after_the_early_echo_is_newer_than_the_response(state: ObjectState) -> None:
    start(state, make(1))
    state.on_event(make(3), 0)
    state.on_event(make(4), 0)
    assert state.on_response(make(1), make(3), 0) is False
    state.on_result(Result(make(3), changed=True), 0)
    assert state.pending == make(4)


def test_without_the_echo_the_last_state_is_believed_after_a_while(state: ObjectState) -> None:
    write(state, 5, now=100)
    assert get_alarm(state) is None
    state.on_event(make(2), 101)
    state.on_event(make(3), 104)
    assert get_alarm(state) == 106  # since the first of them: otherwise, a stream of changes would last for ever
    state.on_time(105)
    assert not is_ready(state)
    state.on_time(106)
    assert get_alarm(state) is None
    assert state.pending == make(3)
    assert state.on_event(make(4), 107) is True


def test_what_only_seemed_to_be_older_than_the_response_is_believed_after_a_while(state: ObjectState) -> None:
    start(state, make(1))
    state.on_event(make(9), 0)
    state.on_response(make(1), make(5), 100)
    state.on_result(Result(make(5), changed=True, settled=True), 100)
    assert get_alarm(state) == 105
    state.on_time(105)
    assert state.pending == make(9)


def test_the_echo_confirms_that_what_was_before_it_is_older(state: ObjectState) -> None:
    write(state, 5)
    state.on_event(make(3), 1)
    state.on_event(make(5), 2)
    assert get_alarm(state) is None
    assert state.is_idle


def test_news_are_believed_at_once_and_replace_what_was_in_doubt(state: ObjectState) -> None:
    write(state, 5)
    for version in (3, 5, 6):
        state.on_event(make(version), 1)
    assert get_alarm(state) is None
    assert state.pending == make(6)


@pytest.mark.parametrize(("delay", "expected"), [(2, 102), (9, 106)])
def test_of_two_times_the_first_one_is_next(state: ObjectState, delay: float, expected: float) -> None:
    start(state, make(1))
    state.on_response(make(1), make(5), 100)
    state.on_event(make(3), 101)
    state.on_result(Result(make(5), changed=True, settled=True, requeue_after=delay), 100)
    assert get_alarm(state) == expected
    state.on_time(expected)
    assert is_ready(state)
    assert state.pending == (make(5) if delay == 2 else make(3))


def test_doubts_do_not_interrupt_the_delay_after_an_error_unless_they_can_be_the_cure(state: ObjectState) -> None:
    start(state, make(1))
    state.on_response(make(1), make(5), 0)
    state.on_failure(make(5), 0)
    state.on_event(make(3), 1)
    state.on_time(6)
    assert get_alarm(state) == 10
    assert not is_ready(state)
    state.on_time(10)
    assert state.pending == make(3)


# Requests to look again.


def test_an_idle_object_is_looked_at_on_request(state: ObjectState) -> None:
    state.on_request(make(1))
    assert is_ready(state)
    assert state.pending == make(1)


def test_what_waits_is_newer_than_what_is_requested(state: ObjectState) -> None:
    state.on_event(make(2), 0)
    state.on_request(make(1))
    assert state.pending == make(2)


def test_a_request_during_the_handling_is_fulfilled_after_it(state: ObjectState) -> None:
    start(state, make(2))
    state.on_request(make(1))
    assert not is_ready(state)
    state.on_result(Result(make(2), requeue_after=7), 0)
    assert is_ready(state)
    assert state.pending == make(2)
    state.on_start()
    state.on_result(Result(make(2)), 0)
    assert state.is_idle


@pytest.mark.parametrize("deleted", [False, True])
def test_a_request_cures_errors_of_deleted_objects_only(state: ObjectState, deleted: bool) -> None:
    fail(state, make(1, deleted=deleted))
    state.on_request(make(1, deleted=deleted))
    assert is_ready(state) is deleted
    assert deleted or get_alarm(state) == 10


def test_a_request_drops_the_progress_that_belongs_to_another_state(state: ObjectState) -> None:
    start(state, make(1))
    state.on_result(Result(make(1), requeue_after=7, saved=KNOWN), 0)
    state.on_request(make(1))
    assert state.memory.saved is None


# What is remembered.


def test_what_is_not_saved_is_not_forgotten(state: ObjectState) -> None:
    obj = start(state, make(1))
    state.memory.unsaved = UNSAVED
    state.on_result(Result(obj), 0)
    assert not state.is_idle


def test_states_are_small() -> None:
    """There are as many of them as there are objects that wait for something."""
    assert not hasattr(ObjectState(make_rules()), "__dict__")
    assert not hasattr(ObjectState(make_rules()).memory, "__dict__")


def test_handlers_are_woken_for_the_last_known_state(state: ObjectState) -> None:
    obj = start(state, make())
    state.on_result(Result(obj=obj), 0)
    state.on_wake(obj, [HandlerId("one")])
    state.on_wake(obj, [HandlerId("two")])
    assert state.memory.woken == {"one": False, "two": False}
    assert is_ready(state)
    assert state.on_start() is obj


def test_those_that_are_woken_meanwhile_are_called_after_that(state: ObjectState) -> None:
    obj = start(state, make())
    state.memory.woken = {HandlerId("zero"): True}
    state.on_wake(obj, [HandlerId("one")])
    state.on_wake(obj, [HandlerId("two")])
    assert state.memory.woken == {"zero": True}
    state.on_result(Result(obj=obj), 0)
    assert state.memory.woken == {"zero": True, "one": False, "two": False}
    assert is_ready(state)


@pytest.mark.parametrize("times", [0, 1])
def test_to_be_woken_interrupts_delays_but_is_no_cure_of_errors(state: ObjectState, times: int) -> None:
    obj = start(state, make())
    if times:
        state.on_failure(obj, 0)
    else:
        state.on_result(Result(obj=obj, requeue_after=100), 0)
    assert get_alarm(state) is not None
    state.on_wake(obj, [HandlerId("one")])
    assert is_ready(state) is not bool(times)
