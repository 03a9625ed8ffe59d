from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kopf
from kopf._controller.changes.handler_states import MAX_DELAY, HandlerState, SavedStates
from kopf._controller.changes.progress import (
    Counts,
    Progress,
    count,
    find_overtaken,
    find_seen,
    get_delay,
    get_pending,
)
from kopf._controller.changes.seen_states import SeenStates
from kopf._handlers.attempts import Outcome
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler, ReconcilingHandler
from kopf._storage.progress import ProgressRecord, SmartProgressStorage
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch, merge, thaw
from kopf._values.reasons import Reason
from kopf._values.records import replace
from tests.handlers.builders import make_changing_handler

NOW = datetime.datetime(2026, 11, 20, 23, 53, 38, 49971, tzinfo=datetime.UTC)
NOTHING = Body({"metadata": {}})

SUCCESS = Outcome(final=True, result=123)
FAILURE = Outcome(final=True, exception=kopf.PermanentError("never"))
IGNORED = Outcome(final=True)
RETRY = Outcome(final=False, delay=5, exception=kopf.TemporaryError("not yet"))
AT_ONCE = Outcome(final=False, delay=0, exception=kopf.TemporaryError("now"))
CHILDREN = Outcome(final=False, delay=3, exception=HandlerChildrenRetry("children"))

ONE, TWO, THREE = HANDLERS = [make_changing_handler(id) for id in ("one", "two", "three")]
KEYS = tuple(handler.id for handler in HANDLERS)


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


class FixedDigests(SeenStates):
    """The same digest whatever the handler is for."""

    _snapshot: bytes | None = None
    digest: str | None = None

    def get(self, handler: ChangingHandler) -> str | None:
        return self.digest


def make_progress(
    body: Body = NOTHING,
    *,
    reason: Reason = Reason.CREATE,
    now: datetime.datetime = NOW,
    known: Any = (),
    unsaved: Any = (),
    digest: str | None = None,
    handlers: Collection[ChangingHandler] = HANDLERS,
    called: set[HandlerId] | None = None,
    woken: dict[HandlerId, bool] | None = None,
    noted: Mapping[ChangingHandler, Outcome] = MappingProxyType({}),
) -> Progress:
    """Continue from what is stored on the object, known, or not saved yet; then, the handlers have these outcomes."""
    remembered = {**dict(known), **dict(unsaved)}
    saved = SavedStates(SmartProgressStorage(), body, now, remembered=remembered, keys=KEYS, obj=body.object)
    progress = Progress(saved, reason, now, unsaved=dict(unsaved).keys(), called=called, woken=woken)
    progress.involve(handlers, FixedDigests(reason, digest=digest))
    for handler, outcome in noted.items():
        progress.note(handler, outcome, now, [], None)
    return progress


def save(progress: Progress, body: Body = NOTHING) -> Body:
    """What the object becomes when the progress is saved on it."""
    patch = Patch()
    progress.store(patch)
    return apply(body, patch)


def apply(body: Body, patch: Patch) -> Body:
    result = thaw(body)
    merge(result, patch)
    return Body(result)


def recall(progress: Progress, id: HandlerId) -> HandlerState:
    state = progress.recall(id)
    assert state is not None
    return state


def with_record(record: dict[str, Any], id: str = "one") -> Body:
    return Body({"metadata": {"annotations": {f"kopf.zalando.org/{id}": json.dumps(record)}}})


# --- the state of one handler ---


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (SUCCESS, {"stopped": after(9), "retries": 1, "success": True}),
        (IGNORED, {"stopped": after(9), "retries": 1, "success": True}),
        (
            FAILURE,
            {"stopped": after(9), "retries": 1, "failure": True, "message": "never", "exception": "PermanentError"},
        ),
        (RETRY, {"delayed": after(14), "retries": 1, "message": "not yet", "exception": "TemporaryError"}),
        (AT_ONCE, {"retries": 1, "message": "now", "exception": "TemporaryError"}),
        (CHILDREN, {"delayed": after(12), "retries": 1, "reentries": 1, "message": "children"}),
        (
            Outcome(final=False, delay=None, exception=ValueError()),
            {"retries": 1, "message": "ValueError", "exception": "ValueError"},
        ),
        (
            Outcome(final=False, delay=None, exception=KeyError("x")),
            {"retries": 1, "message": "'x'", "exception": "KeyError"},
        ),
    ],
)
def test_states_after_outcomes(outcome: Outcome, expected: dict[str, Any]) -> None:
    state = HandlerState(started=NOW, purpose="create").with_outcome(outcome, after(9), [])
    assert state == HandlerState(**{"started": NOW, "purpose": "create", **expected})
    assert state.finished is outcome.final


def test_attempts_are_counted_and_the_last_outcome_counts() -> None:
    state = HandlerState(started=NOW)
    for outcome in [RETRY, AT_ONCE, CHILDREN, RETRY, SUCCESS]:
        state = state.with_outcome(outcome, after(1), [])
    assert state == HandlerState(started=NOW, stopped=after(1), retries=5, reentries=1, success=True)
    assert state.get_attempt(after(1)).retry == 5
    assert state.get_attempt(after(1)).failures == 4


def test_all_subhandlers_that_were_ever_seen_are_remembered_in_their_order() -> None:
    state = HandlerState(started=NOW)
    for ids in [["one/b", "one/a"], ["one/a", "one/c"], []]:
        state = state.with_outcome(CHILDREN, NOW, map(HandlerId, ids))
    assert state.subrefs == ("one/b", "one/a", "one/c")


def test_the_baseline_is_kept_until_the_end_of_the_creation() -> None:
    state = HandlerState(started=NOW, baseline="{}")
    assert [state.with_outcome(outcome, NOW, []).baseline for outcome in (RETRY, CHILDREN, SUCCESS)] == ["{}"] * 3


def test_final_outcomes_delay_nothing() -> None:
    state = HandlerState(started=NOW).with_outcome(Outcome(final=True, delay=5), NOW, [])
    assert (state.delayed, state.finished) == (None, True)


@pytest.mark.parametrize(
    ("cls", "digest", "delayed"),
    [
        (ReconcilingHandler, "seen", after(5)),
        (ReconcilingHandler, "new", None),
        (ChangingHandler, "new", after(5)),
    ],
)
def test_reconcilers_do_not_wait_for_their_retry_if_the_object_has_changed(
    cls: type[ChangingHandler], digest: str, delayed: datetime.datetime | None
) -> None:
    """The change can be the cure of their failure."""
    handler = cls(id=ONE.id, fn=ONE.fn, selector=None, reason=None)
    state = HandlerState(started=NOW, purpose=Reason.UPDATE, retries=1, delayed=after(5), digest="seen")
    progress = make_progress(reason=Reason.UPDATE, known={ONE.id: state}, digest=digest, handlers=[handler])
    assert progress.states == {ONE.id: replace(state, delayed=delayed)}


@pytest.mark.parametrize("reason", [Reason.CREATE, Reason.UPDATE])
@pytest.mark.parametrize("is_changed", [False, True])
def test_reconcilers_compare_what_they_see_with_what_they_have_seen(reason: Reason, is_changed: bool) -> None:
    handler = ReconcilingHandler(id=ONE.id, fn=ONE.fn, selector=None, reason=None)
    state = HandlerState(started=NOW, purpose=reason, delayed=after(5), digest=see(reason, x=1).get_whole())
    progress = make_progress(reason=reason, known={ONE.id: state}, handlers=[])
    progress.involve([handler], see(reason, x=2 if is_changed else 1))
    assert progress[ONE.id].delayed == (None if is_changed else after(5))


def test_what_was_seen_is_known_until_the_next_attempt_has_seen_more() -> None:
    assert HandlerState(started=NOW, digest="seen").with_outcome(RETRY, NOW, []).digest == "seen"


@pytest.mark.parametrize(("delayed", "expected"), [(None, 0), (after(5), 5), (NOW, 0), (after(-5), 0)])
def test_delays_of_states(delayed: datetime.datetime | None, expected: float) -> None:
    assert HandlerState(started=NOW, delayed=delayed).get_delay(NOW) == expected


def test_attempts_are_described_since_the_first_one() -> None:
    attempt = HandlerState(started=NOW, retries=2).get_attempt(after(5))
    assert (attempt.retry, attempt.started, attempt.runtime) == (2, NOW, datetime.timedelta(seconds=5))


# --- the persisted form ---


def test_the_persisted_form() -> None:
    progress = make_progress(handlers=[ONE])
    outcome = Outcome(final=False, delay=60, exception=ValueError("boom"))
    progress.note(ONE, outcome, after(1), [HandlerId("one/a")], None)
    assert save(progress).metadata.annotations == {
        "kopf.zalando.org/one": '{"started":"2026-11-20T23:53:38.049971+00:00",'
        '"delayed":"2026-11-20T23:54:39.049971+00:00",'
        '"purpose":"create","retries":1,"success":false,"failure":false,"message":"boom","subrefs":["one/a"],"exception":"ValueError"}'
    }


def test_times_always_have_microseconds() -> None:
    record = HandlerState(started=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)).as_record()
    assert record["started"] == "2026-01-01T00:00:00.000000+00:00"


@pytest.mark.parametrize(("length", "expected"), [(9_999, 9_999), (10_000, 10_000), (10_001, 10_000)])
def test_long_messages_are_cut(length: int, expected: int) -> None:
    assert HandlerState(started=NOW, message="x" * length).as_record().get("message") == "x" * expected


@pytest.mark.parametrize(("reentries", "expected"), [(0, None), (2, 2)])
def test_reentries_are_stored_if_there_are_any(reentries: int, expected: int | None) -> None:
    record = HandlerState(started=NOW, retries=3, reentries=reentries).as_record()
    assert record.get("reentries") == expected
    assert HandlerState.from_record(record, now=after(9)).reentries == reentries


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"retries": 3, "reentries": 2}, 2),
        ({"retries": 3, "reentries": 3}, 3),
        ({"retries": 1, "reentries": 2}, 1),
        ({"retries": 3, "reentries": "2"}, 0),
        ({"retries": 3}, 0),
        ({"reentries": 2}, 0),
    ],
)
def test_there_are_never_more_reentries_than_attempts(record: Any, expected: int) -> None:
    assert HandlerState.from_record(record, now=NOW).reentries == expected


times = st.datetimes(timezones=st.just(datetime.UTC))
states = st.builds(
    HandlerState,
    started=times,
    stopped=st.none() | times,
    delayed=st.none() | times.filter(lambda time: time <= NOW + MAX_DELAY),
    purpose=st.none() | st.sampled_from([reason.value for reason in Reason]),
    retries=st.integers(0, 99),
    success=st.booleans(),
    failure=st.booleans(),
    message=st.none() | st.text(),
    digest=st.none() | st.text(),
    subrefs=st.lists(st.text().map(HandlerId)).map(tuple),
)


@settings(deadline=None)
@given(states)
def test_states_survive_the_round_trip(state: HandlerState) -> None:
    record = json.loads(json.dumps(state.as_record()))
    assert HandlerState.from_record(record, now=NOW) == state
    compact: Any = {key: value for key, value in record.items() if value is not None}
    assert HandlerState.from_record(compact, now=NOW) == state


@pytest.mark.parametrize(
    "record",
    [
        {},
        dict.fromkeys(ProgressRecord.__annotations__),
        {"started": "garbage", "stopped": "", "delayed": "2026-13-13"},
        {"started": "0001-01-01T00:00:00+14:00", "stopped": "9999-12-31T23:59:59-14:00"},  # there are none in UTC
        {"started": 123, "stopped": [], "delayed": {}, "purpose": 1, "retries": "x", "message": 1, "subrefs": "x"},
        {"retries": -5, "success": "no", "failure": 0, "subrefs": [1, None], "unknown": "x"},
    ],
)
def test_malformed_records_are_as_if_it_has_just_begun(record: Any) -> None:
    assert HandlerState.from_record(record, now=NOW) == HandlerState(started=NOW)


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("2026-12-20T23:53:38+00:00", True),
        ("2026-12-21T23:53:38.049971+00:00", True),  # the clock of another host was ahead by a day
        ("2026-12-21T23:53:38.049972+00:00", False),
        ("2026-12-22T12:00:00+00:00", False),
        ("9999-12-31T23:59:59+00:00", False),
        ("9999-12-31T23:59:59-14:00", False),
    ],
)
def test_delays_that_are_too_long_are_as_none(text: str, is_taken: bool) -> None:
    delayed = HandlerState.from_record({"delayed": text}, now=NOW).delayed
    assert (delayed is not None) is is_taken


@pytest.mark.parametrize("delay", [31 * 86400, 1e12, float("inf")])
def test_too_long_delays_are_limited(delay: float) -> None:
    outcome = Outcome(final=False, delay=delay, exception=kopf.TemporaryError("later", delay=delay))
    state = HandlerState(started=NOW).with_outcome(outcome, NOW, [])
    assert state.delayed == NOW + MAX_DELAY
    assert HandlerState.from_record(state.as_record(), now=NOW) == state


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T23:53:38.049971+00:00",
        "2026-11-20T23:53:38.049971Z",
        "2026-11-21T00:53:38.049971+01:00",
        "2026-11-20T23:53:38.049971",
    ],
)
def test_times_are_understood_in_all_forms(text: str) -> None:
    assert HandlerState.from_record({"started": text}, now=after(99)).started == NOW


# --- the states of all handlers ---


def test_everything_begins_anew_on_new_objects() -> None:
    progress = make_progress()
    assert dict(progress) == {handler.id: HandlerState(started=NOW, purpose="create") for handler in HANDLERS}
    assert len(progress) == 3
    assert get_pending(HANDLERS, progress, NOW) == HANDLERS
    assert get_delay(HANDLERS, progress, NOW) == 0
    assert count(HANDLERS, progress) == Counts(succeeded=0, failed=0)
    assert progress.unsaved == {}
    assert save(progress) == NOTHING


def test_the_progress_continues_after_restarts() -> None:
    progress = make_progress(now=after(1), noted={ONE: SUCCESS, TWO: RETRY})
    body = save(progress)
    restored = make_progress(body, now=after(2))
    assert restored[ONE.id] == progress[ONE.id]
    assert restored[TWO.id] == progress[TWO.id]
    assert restored[THREE.id] == HandlerState(started=after(2), purpose="create")
    assert get_pending(HANDLERS, restored, after(2)) == [THREE]
    assert get_pending(HANDLERS, restored, after(6)) == [TWO, THREE]
    assert restored.unsaved == {}


def test_finished_handlers_are_neither_pending_nor_awaited() -> None:
    progress = make_progress(noted={ONE: SUCCESS, TWO: FAILURE, THREE: RETRY})
    assert get_pending(HANDLERS, progress, NOW) == []
    assert get_pending(HANDLERS, progress, after(5)) == [THREE]
    assert get_delay(HANDLERS, progress, after(2)) == 3
    assert get_delay([ONE, TWO], progress, NOW) is None
    assert count(HANDLERS, progress) == Counts(succeeded=1, failed=1)


def test_the_delay_is_till_the_soonest_of_the_handlers() -> None:
    progress = make_progress()
    for handler, delay in zip(HANDLERS, [7, 5, 9], strict=True):
        progress.note(handler, Outcome(final=False, delay=delay, exception=ValueError()), NOW, [], None)
    assert get_delay(HANDLERS, progress, after(1)) == 4
    assert get_delay([], progress, NOW) is None


@pytest.mark.parametrize(
    ("stored", "reason", "is_restored"),
    [
        ("create", Reason.CREATE, True),
        ("update", Reason.UPDATE, True),
        ("create", Reason.UPDATE, False),
        ("update", Reason.DELETE, False),
        ("resume", Reason.UPDATE, False),
        (None, Reason.UPDATE, True),
    ],
)
def test_the_progress_made_for_another_reason_does_not_count(stored: Any, reason: Reason, is_restored: bool) -> None:
    body = with_record({"purpose": stored, "retries": 5, "success": True})
    state = make_progress(body, reason=reason, handlers=[ONE])[ONE.id]
    assert state == HandlerState(
        started=NOW, purpose=reason.value, retries=5 if is_restored else 0, success=is_restored
    )


@pytest.mark.parametrize("reason", [Reason.CREATE, Reason.UPDATE, Reason.DELETE, Reason.RESUME])
def test_resuming_counts_for_any_reason(reason: Reason) -> None:
    handler = make_changing_handler("one", initial=True)
    body = with_record({"purpose": "resume", "success": True})
    state = make_progress(body, reason=reason, handlers=[handler])[ONE.id]
    assert state == HandlerState(started=NOW, purpose=reason.value, success=True)


def test_states_that_could_not_be_saved_have_precedence() -> None:
    body = with_record({"purpose": "create", "retries": 1})
    unsaved = {"one": HandlerState(started=NOW, purpose="create", retries=2)}
    progress = make_progress(body, unsaved=unsaved)
    assert progress[ONE.id].retries == 2
    assert progress.unsaved == unsaved
    assert json.loads(save(progress, body).metadata.annotations["kopf.zalando.org/one"])["retries"] == 2


def test_states_that_are_known_to_be_saved_are_not_read_again() -> None:
    known = {"one": HandlerState(started=NOW, purpose="create", retries=2)}
    progress = make_progress(known=known)
    assert progress[ONE.id].retries == 2
    assert progress.unsaved == {}
    assert save(progress) == NOTHING


def test_only_what_has_changed_is_stored() -> None:
    progress = make_progress(with_record({"purpose": "create", "retries": 1}), noted={TWO: RETRY})
    assert list(progress.unsaved) == ["two"]
    assert list(save(progress).metadata.annotations) == ["kopf.zalando.org/two"]


def test_subhandlers_that_wait_for_their_first_attempts_are_stored_with_their_parent() -> None:
    """Otherwise, a restart would lose them: the finished parent would not declare them again."""
    child, stranger = (make_changing_handler(id) for id in ("one/a", "two/a"))
    progress = make_progress()
    progress.involve([child, stranger], FixedDigests(Reason.CREATE))
    progress.note(ONE, CHILDREN, NOW, [child.id], None)
    assert progress.unsaved.keys() == {ONE.id, child.id}


# --- the changes between the attempts ---


@pytest.mark.parametrize(
    ("stored", "actual", "is_overtaken"),
    [
        ("a", "b", True),
        ("a", "a", False),
        (None, "b", False),
        ("a", None, False),
        (None, None, False),
    ],
)
def test_handlers_begin_anew_if_the_object_has_changed_since_the_attempt(
    stored: str | None, actual: str | None, is_overtaken: bool
) -> None:
    record = {"purpose": "update", "retries": 5, "success": True, "digest": stored}
    progress = make_progress(with_record(record), reason=Reason.UPDATE, digest=actual, handlers=[ONE])
    assert progress[ONE.id].retries == (0 if is_overtaken else 5)
    assert progress[ONE.id].success is not is_overtaken


def test_attempts_remember_what_they_were_for() -> None:
    progress = make_progress(reason=Reason.UPDATE)
    progress.note(ONE, RETRY, NOW, [], FixedDigests(Reason.UPDATE, digest="digest of one"))
    body = save(progress)
    assert progress[ONE.id].digest == "digest of one"
    assert json.loads(body.metadata.annotations["kopf.zalando.org/one"])["digest"] == "digest of one"


def test_unfinished_handlers_go_on_even_if_the_object_has_changed() -> None:
    record = {"purpose": "update", "retries": 5, "digest": "a"}
    progress = make_progress(with_record(record), reason=Reason.UPDATE, digest="b", handlers=[ONE])
    assert progress[ONE.id].retries == 5


@pytest.mark.parametrize(
    ("record", "is_found"),
    [
        ({"purpose": "update", "digest": "old"}, True),
        ({"purpose": "update", "digest": "new"}, False),
        ({"purpose": "update"}, False),
        ({"purpose": "create", "digest": "old"}, False),
        ({"digest": "old"}, False),
    ],
)
def test_handlers_that_have_seen_a_change_which_is_undone_are_found(record: Any, is_found: bool) -> None:
    progress = make_progress(with_record(record), reason=Reason.UPDATE, handlers=[])
    found = find_overtaken([ONE, TWO], progress.saved, FixedDigests(Reason.UPDATE, digest="new"))
    assert list(found) == ([ONE] if is_found else [])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"one": {"digest": "a"}}, ["a"], id="handler"),
        pytest.param({"one": {"digest": "a"}, "two": {"digest": "b"}}, ["a", "b"], id="handlers"),
        pytest.param(
            {"one": {"digest": "a", "subrefs": ("one/x", "one/y", "one/gone")}, "one/x": {"digest": "b"}, "one/y": {}},
            ["a", "b"],
            id="subhandlers",
        ),
        pytest.param(
            {"one": {"success": False, "subrefs": ("one/x",)}, "one/x": {"digest": "b"}},
            ["b"],
            id="subhandler-of-an-unfinished-handler",
        ),
        pytest.param({"one": {"digest": "a", "success": False}}, [], id="unfinished"),
        pytest.param({"one": {"digest": "a", "success": False, "failure": True}}, ["a"], id="failed"),
        pytest.param({"one": {"digest": "a", "purpose": "update"}}, [], id="not-of-the-creation"),
    ],
)
def test_what_was_seen_in_the_creation_is_found(states: dict[str, Any], expected: list[str]) -> None:
    defaults = {"started": NOW, "purpose": "create", "success": True}
    known = {id: HandlerState(**{**defaults, **fields}) for id, fields in states.items()}
    assert list(find_seen(HANDLERS, make_progress(known=known, handlers=[]).saved)) == expected


# --- the changes by the handlers themselves ---


FIELD = make_changing_handler("one", field=("spec", "a"))


def see(reason: Reason = Reason.UPDATE, **spec: int) -> SeenStates:
    """What is seen in an object with this spec."""
    return SeenStates(reason, json.dumps({"spec": spec}).encode())


@pytest.mark.parametrize(
    ("seen", "before", "after", "expected", "is_changed"),
    [
        pytest.param({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, True, id="changed"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1}, False, id="another-field-changed"),
        pytest.param({"a": 0}, {"a": 1}, {"a": 2}, {"a": 0}, False, id="not-seen-before"),
        pytest.param({"a": 2}, {"a": 1}, {"a": 2}, {"a": 2}, False, id="changed-to-what-was-seen"),
    ],
)
def test_own_changes_overtake_only_those_who_have_not_seen_what_was_before(
    seen: Any, before: Any, after: Any, expected: Any, is_changed: bool
) -> None:
    known = {"one": HandlerState(started=NOW, purpose="update", success=True, digest=see(**seen).get(FIELD))}
    progress = make_progress(reason=Reason.UPDATE, known=known, handlers=[FIELD, TWO])
    progress.account_for(see(**before), see(**after))
    assert progress[FIELD.id].digest == see(**expected).get(FIELD)
    assert progress[FIELD.id].success
    assert list(progress.unsaved) == (["one"] if is_changed else [])
    assert progress[TWO.id].digest is None


def test_own_changes_of_one_cycle_are_seen_by_those_called_in_it() -> None:
    progress = make_progress(reason=Reason.UPDATE, handlers=[FIELD])
    progress.note(FIELD, SUCCESS, NOW, [], see(a=1))
    progress.account_for(see(a=1), see(a=2))
    assert progress.unsaved[FIELD.id].digest == see(a=2).get(FIELD)


@pytest.mark.parametrize("reason", [Reason.CREATE, Reason.UPDATE])
def test_own_changes_are_seen_by_subhandlers_of_other_cycles(reason: Reason) -> None:
    before, later = see(reason, a=1, b=1), see(reason, a=2, b=1)
    done = HandlerState(started=NOW, purpose=reason.value, success=True)
    known = {
        "one": replace(done, subrefs=("one/x", "one/other", "one/undigested", "one/gone")),
        "one/x": replace(done, digest=before.get_whole()),
        "one/other": replace(done, digest="other"),
        "one/undigested": done,
    }
    progress = make_progress(reason=reason, known=known)
    progress.account_for(before, later)
    assert list(progress.unsaved) == ["one/x"]
    assert recall(progress, HandlerId("one/x")).digest == later.get_whole()


@pytest.mark.parametrize(("field", "is_changed"), [(("spec",), True), (("spec", "b"), False)])
def test_own_changes_are_seen_by_subhandlers_of_fields(field: tuple[str, ...], is_changed: bool) -> None:
    """The single value that is changed here, is the same as in the field of the sub-handler; it is not mistaken."""
    before, later = see(a=1, b=1), see(a=2, b=1)
    handler = make_changing_handler("one/x", field=field)
    state = HandlerState(started=NOW, purpose="update", success=True, digest=before.get(handler))
    known = {"one": HandlerState(started=NOW, purpose="update", subrefs=(handler.id,)), "one/x": state}
    progress = make_progress(reason=Reason.UPDATE, known=known)
    progress.account_for(before, later)
    assert list(progress.unsaved) == (["one/x"] if is_changed else [])
    assert recall(progress, HandlerId("one/x")).digest == later.get(handler)


def test_subhandlers_of_this_cycle_are_accounted_for_as_all_others() -> None:
    sub = make_changing_handler("one/x")
    progress = make_progress()
    progress.involve([sub], FixedDigests(Reason.CREATE))
    progress.note(sub, SUCCESS, NOW, [], see(Reason.CREATE, a=1))
    progress.note(ONE, SUCCESS, NOW, [sub.id], see(Reason.CREATE, a=1))
    progress.account_for(see(Reason.CREATE, a=1), see(Reason.CREATE, a=2))
    assert {state.digest for state in progress.unsaved.values()} == {see(a=2).get_whole()}
    assert list(progress.unsaved) == ["one", "one/x"]


# --- copies ---


def test_copies_are_changed_separately() -> None:
    progress = make_progress(reason=Reason.UPDATE)
    progress.note(ONE, RETRY, NOW, [], see(a=1))
    twin = progress.copy()
    assert dict(twin) == dict(progress)
    assert twin.unsaved == progress.unsaved
    assert twin[ONE.id].digest == see(a=1).get(ONE)
    twin.note(TWO, SUCCESS, NOW, [], see(a=2))
    progress.note(THREE, FAILURE, NOW, [], see(a=3))
    assert list(twin.unsaved) == ["one", "two"]
    assert list(progress.unsaved) == ["one", "three"]
    assert (progress[TWO.id].retries, twin[THREE.id].retries) == (0, 0)
    twin.note_saved()
    assert twin.unsaved == {}
    assert list(progress.unsaved) == ["one", "three"]


# --- resuming by one operator after another ---


RESUMING = make_changing_handler("one", initial=True)
SUB = make_changing_handler("one/sub")


@pytest.mark.parametrize(
    ("parent", "handler", "called", "is_anew"),
    [
        pytest.param(None, RESUMING, None, False, id="not-resumed-now"),
        pytest.param(None, RESUMING, (), True, id="of-the-previous-operator"),
        pytest.param(None, RESUMING, ("two",), True, id="of-the-previous-operator-with-others-called"),
        pytest.param(None, RESUMING, ("one",), False, id="of-this-operator"),
        pytest.param(None, ONE, (), False, id="not-for-resuming"),
        pytest.param(RESUMING, SUB, (), True, id="subhandler"),
        pytest.param(RESUMING, SUB, None, False, id="subhandler-not-resumed-now"),
        pytest.param(RESUMING, SUB, ("one/sub",), False, id="subhandler-of-this-operator"),
        pytest.param(ONE, SUB, (), False, id="subhandler-not-for-resuming"),
        pytest.param(RESUMING, make_changing_handler("onesub"), (), False, id="no-subhandler-in-spite-of-its-name"),
    ],
)
def test_objects_are_resumed_by_every_operator_anew(
    parent: ChangingHandler | None, handler: ChangingHandler, called: Any, is_anew: bool
) -> None:
    known = {handler.id: HandlerState(started=NOW, purpose="create", retries=5, success=True)}
    handlers = [handler] if parent is None else [parent, handler]
    called_by_this = None if called is None else set(called)
    progress = make_progress(known=known, handlers=handlers, called=called_by_this, now=after(9))
    anew = HandlerState(started=after(9), purpose="create")
    assert progress[handler.id] == (anew if is_anew else known[handler.id])


def test_unfinished_resuming_is_continued_by_the_next_operator() -> None:
    known = {"one": HandlerState(started=NOW, purpose="create", retries=5)}
    assert make_progress(known=known, handlers=[RESUMING], called=set())[RESUMING.id].retries == 5


def test_the_handlers_that_this_operator_has_called_are_noted() -> None:
    called: set[HandlerId] = set()
    progress = make_progress(handlers=[RESUMING, TWO], called=called)
    assert called == set()
    progress.note(RESUMING, SUCCESS, NOW, [], None)
    assert called == {"one"}
    progress.involve([RESUMING], FixedDigests(Reason.CREATE))
    assert progress[RESUMING.id].success


def test_what_is_done_now_is_newer_than_what_is_saved() -> None:
    progress = make_progress(with_record({"purpose": "create", "retries": 1}), noted={ONE: RETRY})
    assert recall(progress, ONE.id).retries == 2
    assert progress.recall(HandlerId("unknown")) is None


def test_subhandlers_of_the_handling_for_another_reason_are_remembered() -> None:
    progress = make_progress(with_record({"purpose": "update", "retries": 3, "subrefs": ["one/x"]}))
    assert progress[ONE.id] == HandlerState(started=NOW, purpose="create", subrefs=(HandlerId("one/x"),))


# --- the end of the cycle ---


def purge(progress: Progress, body: Body, handlers: Collection[ChangingHandler] = HANDLERS) -> Patch:
    patch = Patch()
    progress.purge(handlers, patch)
    assert not apply(body, patch).metadata.annotations
    return patch


def test_nothing_is_purged_where_nothing_is_stored() -> None:
    assert purge(make_progress(), NOTHING) == {}


def test_all_records_are_purged_with_those_of_the_subhandlers() -> None:
    progress = make_progress()
    sub = make_changing_handler("one/sub")
    progress.involve([sub], FixedDigests(Reason.CREATE))
    progress.note(sub, SUCCESS, NOW, [], None)
    progress.note(ONE, CHILDREN, NOW, [sub.id, HandlerId("one/gone")], None)
    body = save(progress)
    assert len(body.metadata.annotations) == 2
    purge(make_progress(body, now=after(5)), body)


def test_records_of_handlers_that_are_not_called_now_are_purged_too() -> None:
    record = {"purpose": "create", "subrefs": ["two/sub"]}
    texts = {"two": record, "two/sub": {"purpose": "create"}}
    annotations = {f"kopf.zalando.org/{id.replace('/', '.')}": json.dumps(record) for id, record in texts.items()}
    body = Body({"metadata": {"annotations": annotations}})
    purge(make_progress(body, reason=Reason.UPDATE, handlers=[ONE]), body)


def test_records_of_subhandlers_that_are_only_remembered_are_purged_too() -> None:
    known = {"one": HandlerState(started=NOW, purpose="create", subrefs=(HandlerId("one/x"),))}
    body = with_record({"purpose": "create"}, id="one.x")
    purge(make_progress(body, known=known, handlers=[]), body, handlers=[])


def test_the_dummies_of_older_operators_are_removed() -> None:
    body = Body({"metadata": {"annotations": {"kopf.zalando.org/touch-dummy": "x"}}})
    assert purge(make_progress(body), body).metadata.annotations == {"kopf.zalando.org/touch-dummy": None}


def test_records_of_others_are_not_touched() -> None:
    body = with_record({"purpose": "create"}, id="unknown")
    patch = Patch()
    make_progress(body).purge(HANDLERS, patch)
    assert patch == {}


def test_what_was_to_be_stored_is_not_stored_when_purged() -> None:
    progress = make_progress(noted={ONE: SUCCESS})
    patch = Patch()
    progress.store(patch)
    progress.purge(HANDLERS, patch)
    assert not patch.metadata.annotations


def test_storages_with_caches_are_flushed_once_for_each_saving() -> None:
    flushes: list[str] = []

    class Cached(SmartProgressStorage):
        def flush(self) -> None:
            flushes.append("flushed")

    progress = Progress(SavedStates(Cached(), NOTHING, NOW, remembered={}), Reason.CREATE, NOW)
    progress.store(Patch())
    assert len(flushes) == 1
    progress.purge([], Patch())
    assert len(flushes) == 2


# --- the state as of the beginning of the creation ---


def list_baselines(progress: Progress) -> list[str | None]:
    return [state.baseline for key in KEYS if (state := progress.recall(key)) is not None]


def test_the_baseline_goes_to_one_of_the_records_that_are_saved_anyway() -> None:
    progress = make_progress()
    progress.keep_baseline(b"{}", HANDLERS)
    assert save(progress) == NOTHING
    progress.note(TWO, RETRY, NOW, (), None)
    progress.note(THREE, RETRY, NOW, (), None)
    progress.keep_baseline(b"{}", HANDLERS)
    assert list_baselines(make_progress(save(progress))) == [None, "{}", None]


def test_the_baseline_stays_where_it_is() -> None:
    progress = make_progress(noted={TWO: RETRY})
    progress.keep_baseline(b"{}", HANDLERS)
    later = make_progress(save(progress), noted={ONE: RETRY})
    later.keep_baseline(b"{}", HANDLERS)
    assert list_baselines(later) == [None, "{}", None]
    assert later.unsaved.keys() == {ONE.id}
    later.keep_baseline(b"{1}", HANDLERS)
    assert list_baselines(later) == [None, "{1}", None]
    assert later.unsaved.keys() == {ONE.id, TWO.id}


def test_the_baseline_stays_with_handlers_that_are_not_called_now() -> None:
    progress = make_progress(known={TWO.id: HandlerState(NOW, retries=7, baseline="{}")}, handlers=[ONE])
    progress.keep_baseline(b"{1}", HANDLERS)
    assert progress.unsaved == {TWO.id: HandlerState(NOW, retries=7, baseline="{1}")}


def test_the_keeper_of_the_baseline_keeps_what_it_has_seen() -> None:
    progress = make_progress()
    progress.note(ONE, SUCCESS, NOW, (), FixedDigests(Reason.CREATE, whole="seen"))
    progress.keep_baseline(b"{}", HANDLERS)
    assert (progress[ONE.id].baseline, progress.unsaved[ONE.id].digest) == ("{}", "seen")


@pytest.mark.parametrize(("size", "is_kept"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_large_baselines_are_not_kept(size: int, is_kept: bool) -> None:
    progress = make_progress(noted={ONE: RETRY})
    progress.keep_baseline(b"x" * size, HANDLERS)
    assert (recall(progress, ONE.id).baseline is not None) is is_kept


# --- handlers that are called once more, as their owned objects have changed ---


@pytest.mark.parametrize(
    ("woken", "is_anew"),
    [
        (None, False),
        ({}, False),
        ({"one": True}, False),
        ({"one": False}, True),
    ],
)
def test_finished_handlers_begin_anew_with_their_subhandlers(woken: Any, is_anew: bool) -> None:
    finished = HandlerState(NOW, purpose="create", stopped=NOW, success=True, retries=1)
    known = {ONE.id: replace(finished, subrefs=(TWO.id,)), TWO.id: finished, THREE.id: finished}
    woken = None if woken is None else dict(woken)  # calls are noted there
    progress = make_progress(known=known, now=after(9), woken=woken, handlers=[ONE])
    assert progress[ONE.id].finished is not is_anew
    assert progress[ONE.id].subrefs == (TWO.id,)
    assert (TWO.id in progress) is is_anew
    if is_anew:
        assert progress[TWO.id] == HandlerState(started=after(9), purpose="create")
        progress.note(ONE, CHILDREN, after(9), [TWO.id], None)
        assert progress.unsaved.keys() == {ONE.id, TWO.id}  # the saved success of the sub-handler is void


def test_woken_handlers_are_called_once() -> None:
    woken = {ONE.id: False, TWO.id: False}
    make_progress(woken=woken, noted={ONE: SUCCESS, THREE: SUCCESS})
    assert woken == {ONE.id: True, TWO.id: False}


@pytest.mark.parametrize("is_woken", [False, True])
def test_delayed_handlers_are_not_delayed_anymore(is_woken: bool) -> None:
    delayed = HandlerState(NOW, purpose="create", delayed=after(60), retries=1)
    progress = make_progress(known={ONE.id: delayed}, woken={ONE.id: False} if is_woken else None, handlers=[ONE])
    assert progress[ONE.id] == (replace(delayed, delayed=None) if is_woken else delayed)
