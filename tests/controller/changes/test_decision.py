"""
What is decided about an object, in tables: given the object, its handlers, and what is known from before.

The rules here are the promises of ``docs/guarantees.md``, as far as they are decided and not done.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

import kopf
from kopf._controller.changes.decision import (
    Choice,
    Plan,
    Saving,
    Situation,
    conclude,
    decide,
    is_overtaken,
    make_fingerprint,
    recognise,
)
from kopf._controller.changes.detection import Detection, detect
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.handler_states import HandlerState, SavedStates
from kopf._controller.changes.progress import find_seen
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import Candidates
from kopf._handlers.attempts import Outcome
from kopf._handlers.handlers import ChangingHandler, DaemonHandler
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._settings.settings import PersistenceSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch
from kopf._values.reasons import Reason
from kopf._values.user_functions import FilterError
from tests.handlers.builders import RESOURCE, do_nothing

NOW = datetime.datetime(2026, 11, 20, 23, 53, 38, 49971, tzinfo=datetime.UTC)
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
DELETION = "2026-11-21T00:00:00Z"
ADD, REMOVE = FinalizerChange.ADD, FinalizerChange.REMOVE

SUCCESS = Outcome(final=True)
FAILURE = Outcome(final=True, exception=kopf.PermanentError("never"))
RETRY = Outcome(final=False, delay=5, exception=kopf.TemporaryError("not yet"))
AT_ONCE = Outcome(final=False, delay=0, exception=kopf.TemporaryError("now"))

persistence = PersistenceSettings()
snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage)


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def declare(**decorators: Any) -> HandlersOfResource:
    """Declare the handlers by the real decorators: their ids to the decorators, with options if there are any."""
    registry = OperatorRegistry()
    for id, item in decorators.items():
        decorator, options = item if isinstance(item, tuple) else (item, {})
        decorator("kopfexamples", registry=registry, id=id, **options)(do_nothing)
    return registry.plan([RESOURCE])[RESOURCE]


CREATE = declare(create=kopf.on.create)
CREATES = declare(one=kopf.on.create, two=kopf.on.create)
UPDATE = declare(update=kopf.on.update)
UPDATES = declare(one=kopf.on.update, two=kopf.on.update)
DELETE = declare(create=kopf.on.create, update=kopf.on.update, delete=kopf.on.delete)
OPTIONAL = declare(delete=(kopf.on.delete, {"optional": True}))
RESUME = declare(resume=kopf.on.resume, update=kopf.on.update)
DAEMON = declare(create=kopf.on.create, daemon=kopf.daemon)
ONLY_DAEMON = declare(daemon=kopf.daemon)


def make(
    spec: Any = 1,
    *,
    handled: Any = None,
    records: Mapping[str, Any] | None = None,
    finalizers: Sequence[str] | None = None,
    deleted: bool = False,
) -> KubeObject:
    """Make an object as it comes from the API, which was handled with the other spec, if it was."""
    annotations = {f"kopf.zalando.org/{id}": json.dumps(record) for id, record in (records or {}).items()}
    if handled is not None:
        annotations[LAST_HANDLED] = json.dumps({"spec": handled}) + "\n"
    metadata = {"name": "x", "uid": "uid", "annotations": annotations, "finalizers": finalizers}
    metadata |= {"deletionTimestamp": DELETION} if deleted else {}
    return KubeObject.from_json(json.dumps({"metadata": metadata, "spec": spec}, separators=(",", ":")).encode())


class Company:
    """Daemons & timers of the object that run, be they optional or not, or have exited for good."""

    def __init__(self, *, running: bool = False, optional: bool = False, over: bool = False) -> None:
        self.running = running
        self.optional = optional
        self.over = over

    def has_running(self, *, blocking: bool = False) -> bool:
        return self.running and not (blocking and self.optional)

    def is_over(self, handler: Any) -> bool:
        return self.over and isinstance(handler, DaemonHandler)


def look(
    obj: KubeObject,
    handlers: HandlersOfResource,
    *,
    initial: bool = False,
    remembered: Mapping[Any, HandlerState] | None = None,
    now: datetime.datetime = NOW,
    choose: Callable[[Reason], Choice] | None = None,
    **options: Any,
) -> tuple[Plan, Situation]:
    """Look at the object, and decide what to do."""
    candidates = Candidates(handlers)
    detection = detect(obj, snapshots, finalizer=FINALIZER, initial=initial)
    storage = persistence.progress_storage
    saved = SavedStates(storage, Body(obj), now, remembered=remembered or {}, keys=candidates.ids, obj=obj)
    situation = Situation(
        key="uid",
        **{"detection": detection, "blocking": Blocking.of(obj, FINALIZER), "saved": saved, "now": now, **options},
    )
    return decide(situation, choose or (lambda reason: candidates.select_all(reason, initial=initial))), situation


def plan_for(obj: KubeObject, handlers: HandlersOfResource, **options: Any) -> Plan:
    return look(obj, handlers, **options)[0]


def finish(
    obj: KubeObject, handlers: HandlersOfResource, outcomes: Mapping[str, Outcome] | None = None, **options: Any
) -> Plan:
    """Decide, call the handlers with these outcomes, and conclude."""
    plan, situation = look(obj, handlers, **options)
    for handler in plan.call:
        if handler.id in (outcomes or {}):
            plan.progress.note(handler, (outcomes or {})[handler.id], situation.now, [], plan.seen)
    conclude(plan, situation, situation.now)
    return plan


def save(obj: KubeObject, plan: Plan) -> KubeObject:
    """What the object becomes when the plan is saved on it."""
    patch = Patch()
    if plan.saving is Saving.PROGRESS:
        plan.progress.store(patch)
    if plan.saving is Saving.END:
        plan.progress.purge(ALL_HANDLERS, patch)
        if plan.is_handled:
            snapshots.store(snapshots.take(obj), body=Body(obj), patch=patch)
    result = patch.apply_to(obj)
    if plan.finalizer is not None:
        result["metadata"]["finalizers"] = plan.finalizer.apply(FINALIZER, result["metadata"].get("finalizers"))
    return KubeObject.from_json(json.dumps(result, separators=(",", ":")).encode())


ALL_HANDLERS = [handler for handlers in (CREATE, CREATES, UPDATES, DELETE, RESUME) for handler in handlers.changing]


def get_ids(handlers: Collection[Any]) -> list[str]:
    return [handler.id for handler in handlers]


def record(purpose: str, **fields: Any) -> dict[str, Any]:
    return {"started": NOW.isoformat(), "purpose": purpose, **fields}


def get_digest(spec: Any, purpose: str = "update") -> str:
    """The digest that is stored by a handler which has seen the object with this spec."""
    handlers = UPDATES if purpose == "update" else CREATES
    handled = "before" if purpose == "update" else None
    plan = finish(make(spec, handled=handled), handlers, {"one": SUCCESS})
    digest = plan.progress.unsaved[handlers.changing[0].id].digest
    assert digest is not None
    return digest


# --- what is called ---


@pytest.mark.parametrize(
    ("obj", "handlers", "initial", "expected"),
    [
        pytest.param(make(), CREATE, False, ["create"], id="new"),
        pytest.param(make(), CREATE, True, ["create"], id="new-at-the-start"),
        pytest.param(make(), UPDATE, False, [], id="new-with-no-handlers-for-that"),
        pytest.param(make(2, handled=1), UPDATE, False, ["update"], id="changed"),
        pytest.param(make(2, handled=1), CREATE, False, [], id="changed-with-no-handlers-for-that"),
        pytest.param(make(1, handled=1), DELETE, False, [], id="same"),
        pytest.param(make(1, handled=1), RESUME, True, ["resume"], id="same-at-the-start"),
        pytest.param(make(1, handled=1), RESUME, False, [], id="same-afterwards"),
        pytest.param(make(2, handled=1), RESUME, True, ["resume", "update"], id="changed-at-the-start"),
        pytest.param(make(1, handled=1, deleted=True, finalizers=[FINALIZER]), DELETE, False, ["delete"], id="deleted"),
        pytest.param(
            make(deleted=True, finalizers=[FINALIZER]), DELETE, False, ["delete"], id="deleted-but-not-created"
        ),
        pytest.param(
            make(1, handled=1, deleted=True, finalizers=["other"]), DELETE, False, [], id="deleted-and-released"
        ),
    ],
)
def test_handlers_are_called_for_what_has_happened(
    obj: KubeObject, handlers: HandlersOfResource, initial: bool, expected: list[str]
) -> None:
    if handlers is DELETE and expected != ["delete"]:
        obj = make(1, handled=1, finalizers=[FINALIZER]) if not obj.head.deletionTimestamp else obj
    assert get_ids(plan_for(obj, handlers, initial=initial).call) == expected


@pytest.mark.parametrize(
    ("state", "now", "is_called"),
    [
        pytest.param({}, 0, True, id="begun"),
        pytest.param({"success": True}, 0, False, id="succeeded"),
        pytest.param({"failure": True}, 0, False, id="failed"),
        pytest.param({"retries": 1}, 0, True, id="retried-at-once"),
        pytest.param({"delayed": after(5).isoformat()}, 4.9, False, id="delayed"),
        pytest.param({"delayed": after(5).isoformat()}, 5, True, id="delayed-till-now"),
    ],
)
@pytest.mark.parametrize(
    ("obj", "handlers", "purpose"),
    [
        ({}, CREATES, "create"),
        ({"handled": "before"}, UPDATES, "update"),
    ],
)
def test_what_is_done_is_not_called_again(
    obj: Any, handlers: HandlersOfResource, purpose: str, state: Any, now: float, is_called: bool
) -> None:
    obj = make(**obj, records={"one": record(purpose, **state)})
    plan = plan_for(obj, handlers, now=after(now))
    assert get_ids(plan.call) == (["one", "two"] if is_called else ["two"])
    assert get_ids(plan.called) == ["one", "two"]


def test_the_number_of_retries_survives_restarts() -> None:
    obj, retries = make(), []
    for seconds in range(0, 50, 10):
        plan, situation = look(obj, CREATE, now=after(seconds))
        retries.append(plan.progress[plan.call[0].id].retries)
        plan.progress.note(plan.call[0], RETRY, after(seconds), [], plan.seen)
        conclude(plan, situation, after(seconds))
        obj = save(obj, plan)
    assert retries == [0, 1, 2, 3, 4]
    assert plan_for(obj, CREATE, now=after(50)).progress[CREATE.changing[0].id].started == NOW


@pytest.mark.parametrize(
    ("record_of_one", "expected"),
    [
        pytest.param(record("create", success=True), ["one"], id="of-another-reason"),
        pytest.param(record("update", success=True), [], id="of-this-reason"),
        pytest.param({"success": True}, [], id="of-an-older-version"),
    ],
)
def test_what_was_done_for_another_reason_does_not_count(record_of_one: Any, expected: list[str]) -> None:
    handlers = declare(one=kopf.on.update)
    assert get_ids(plan_for(make(2, handled=1, records={"one": record_of_one}), handlers).call) == expected


# --- changes in the middle ---


@pytest.mark.parametrize(
    ("spec", "handled", "expected"),
    [
        pytest.param("after", "before", [], id="same-change"),
        pytest.param("other", "before", ["one"], id="changed-again"),
        pytest.param("before", "before", ["one"], id="changed-back"),
    ],
)
@pytest.mark.parametrize("state", [{"success": True}, {"failure": True}])
def test_who_has_seen_another_change_sees_this_one(spec: str, handled: str, expected: list[str], state: Any) -> None:
    handlers = declare(one=kopf.on.update)
    records = {"one": record("update", digest=get_digest("after"), **state)}
    plan = plan_for(make(spec, handled=handled, records=records), handlers)
    assert plan.reason is Reason.UPDATE or not expected
    assert get_ids(plan.call) == expected


def test_a_change_that_is_undone_is_handled_as_an_update() -> None:
    handlers, asked = declare(one=kopf.on.update), list[Reason]()

    def choose(reason: Reason) -> Choice:
        asked.append(reason)
        return Candidates(handlers).select_all(reason, initial=False)

    obj = make("before", handled="before", records={"one": record("update", digest=get_digest("after"), success=True)})
    plan = finish(obj, handlers, {"one": SUCCESS}, choose=choose)
    assert asked == [Reason.NOOP, Reason.UPDATE]
    assert plan.reason is Reason.UPDATE
    digest = SeenStates(Reason.UPDATE, snapshots.take(obj)).get(handlers.changing[0])
    assert [state.digest for state in plan.progress.unsaved.values()] == [digest]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("other", id="changed-again"),
        pytest.param("before", id="changed-back"),
    ],
)
def test_states_are_not_digested_again(spec: str) -> None:
    handlers = declare(one=kopf.on.update)
    obj = make(spec, handled="before", records={"one": record("update", digest=get_digest("after"), success=True)})
    plan = finish(obj, handlers, {"one": SUCCESS}, digest="known")
    assert [state.digest for state in plan.progress.unsaved.values()] == ["known"]


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        pytest.param([], ["resume"], id="by-the-previous-operator"),
        pytest.param(["resume"], [], id="by-this-operator"),
    ],
)
def test_objects_are_resumed_once_by_every_operator(called: list[Any], expected: list[str]) -> None:
    noted = set(called)
    obj = make(1, handled=1, records={"resume": record("resume", success=True)})
    plan = finish(obj, RESUME, {"resume": SUCCESS}, initial=True, called=noted)
    assert get_ids(plan.call) == expected
    assert noted == {"resume"}


@pytest.mark.parametrize(
    ("woken", "expected"), [(None, ["one"]), ({"two": True}, ["one"]), ({"two": False}, ["one", "two"])]
)
def test_woken_handlers_are_called_once_more(woken: Any, expected: list[str]) -> None:
    obj = make(2, handled=1, records={"two": record("update", success=True)})
    assert get_ids(plan_for(obj, UPDATES, woken=woken).call) == expected


def test_creations_happen_once_however_the_object_changes() -> None:
    records = {"one": record("create", digest=get_digest("first", "create"), success=True)}
    plan, situation = look(make("second", records=records), CREATES)
    assert get_ids(plan.call) == ["two"]
    assert [*find_seen(CREATES.changing, situation.saved)] == [get_digest("first", "create")]


def test_states_that_are_remembered_are_newer_than_those_on_the_object() -> None:
    key = CREATE.changing[0].id
    done = HandlerState(started=NOW, purpose="create", success=True)
    obj = make(records={"create": record("create", retries=1)})
    assert get_ids(plan_for(obj, CREATE).call) == ["create"]
    assert plan_for(obj, CREATE, remembered={key: done}).call == []


# --- what is saved ---


@pytest.mark.parametrize(
    ("outcomes", "saving", "requeue_after"),
    [
        ({"one": SUCCESS}, Saving.PROGRESS, 0),
        ({"one": SUCCESS, "two": RETRY}, Saving.PROGRESS, 5),
        ({"one": AT_ONCE, "two": RETRY}, Saving.PROGRESS, 0),
        ({"one": SUCCESS, "two": SUCCESS}, Saving.END, None),
        ({"one": SUCCESS, "two": FAILURE}, Saving.END, None),
        ({"one": FAILURE, "two": FAILURE}, Saving.END, None),
    ],
)
def test_the_handling_ends_when_all_handlers_are_done(
    outcomes: dict[str, Outcome], saving: Saving, requeue_after: float | None
) -> None:
    plan = finish(make(), CREATES, outcomes)
    assert (plan.saving, plan.requeue_after) == (saving, requeue_after)
    assert plan.resumed is plan.is_handled is (saving is Saving.END)


@pytest.mark.parametrize(("handled", "handlers"), [(None, CREATES), ("before", UPDATES)])
def test_own_writes_need_nothing_to_be_done(handled: Any, handlers: HandlersOfResource) -> None:
    obj = make("after", handled=handled)
    called = []
    for _ in range(2):  # as by the default lifecycle
        plan, situation = look(obj, handlers)
        called.append(plan.call[0].id)
        plan.progress.note(plan.call[0], SUCCESS, NOW, [], plan.seen)
        conclude(plan, situation, NOW)
        obj = save(obj, plan)
    assert called == ["one", "two"]
    echo = finish(obj, handlers)
    assert (echo.reason, echo.call, echo.finalizer, echo.is_handled) == (Reason.NOOP, [], None, False)
    assert save(obj, echo).raw == obj.raw
    assert list(obj.head.annotations or {}) == [LAST_HANDLED]


@pytest.mark.parametrize(
    ("obj", "handlers", "initial", "is_handled"),
    [
        pytest.param(make(), UPDATE, False, True, id="new-with-nothing-to-call"),
        pytest.param(make(2, handled=1), CREATE, False, True, id="changed-with-nothing-to-call"),
        pytest.param(make(1, handled=1), CREATE, False, False, id="same"),
        pytest.param(make(1, handled=1), RESUME, True, False, id="resumed"),
        pytest.param(make(1, handled=1, deleted=True, finalizers=[FINALIZER]), DELETE, False, False, id="deleted"),
    ],
)
def test_the_last_handled_state_is_stored_for_creations_and_updates(
    obj: KubeObject, handlers: HandlersOfResource, initial: bool, is_handled: bool
) -> None:
    outcomes = {"resume": SUCCESS, "delete": SUCCESS}
    plan = finish(obj, handlers, outcomes, initial=initial)
    assert (plan.saving, plan.is_handled) == (Saving.END, is_handled)


@pytest.mark.parametrize(("is_restoring", "is_handled"), [(True, True), (False, False)])
def test_the_lost_state_is_stored_again(is_restoring: bool, is_handled: bool) -> None:
    obj = make()
    memory = make_fingerprint(snapshots.take(obj))
    detection = recognise(detect(obj, snapshots, finalizer=FINALIZER, initial=False), memory, is_released=False)
    plan = finish(obj, CREATE, detection=detection, is_restoring=is_restoring)
    assert (plan.reason, plan.call, plan.is_handled) == (Reason.NOOP, [], is_handled)


@pytest.mark.parametrize(
    ("spec", "memory", "released", "reason"),
    [
        pytest.param(1, None, False, Reason.CREATE, id="new"),
        pytest.param(1, 1, False, Reason.NOOP, id="lost"),
        pytest.param(2, 1, False, Reason.UPDATE, id="lost-and-changed"),
        pytest.param(1, None, True, Reason.FREE, id="released"),
        pytest.param(1, 1, True, Reason.FREE, id="lost-and-released"),
    ],
)
def test_what_is_remembered_corrects_what_is_detected(spec: Any, memory: Any, released: bool, reason: Reason) -> None:
    detection = detect(make(spec), snapshots, finalizer=FINALIZER, initial=False)
    fingerprint = None if memory is None else make_fingerprint(snapshots.take(make(memory)))
    assert recognise(detection, fingerprint, is_released=released).reason is reason


@pytest.mark.parametrize(("last", "expected"), [(b'{"spec":1}', {"spec": 1}), (None, {})])
def test_what_was_handled_last_is_what_lost_states_are_compared_to(last: bytes | None, expected: Any) -> None:
    detection = detect(make(2), snapshots, finalizer=FINALIZER, initial=False)
    assert recognise(detection, 123, is_released=False, last=last).last == expected


@pytest.mark.parametrize("obj", [make(2, handled=1), make(1, handled=1)])
def test_what_is_not_lost_is_not_corrected(obj: KubeObject) -> None:
    detection = detect(obj, snapshots, finalizer=FINALIZER, initial=False)
    assert recognise(detection, 123, is_released=False) is detection


# --- what does not fit the models ---


@pytest.mark.parametrize(("outcome", "requeue_after"), [(SUCCESS, None), (RETRY, 5)])
def test_those_that_the_object_does_not_fit_wait_for_its_changes(outcome: Outcome, requeue_after: float | None) -> None:
    plan, situation = look(make(2, handled=1), UPDATES)
    plan.unfit = [UPDATES.changing[0].id]
    plan.progress.note(UPDATES.changing[1], outcome, NOW, [], plan.seen)
    conclude(plan, situation, NOW)
    assert (plan.saving, plan.resumed, plan.requeue_after) == (Saving.PROGRESS, False, requeue_after)


# --- what could not be saved ---


@pytest.mark.parametrize(
    ("state", "saving"),
    [
        ({"success": True}, Saving.END),
        ({"retries": 1}, Saving.PROGRESS),
    ],
)
def test_what_could_not_be_saved_is_saved_before_anything_is_called(state: Any, saving: Saving) -> None:
    key = CREATE.changing[0].id
    unsaved = {key: HandlerState(started=NOW, purpose="create", **state)}
    plan = finish(make(), CREATE, remembered=unsaved, unsaved=unsaved.keys())
    assert plan.call == ()
    assert plan.progress.unsaved == unsaved
    assert plan.saving is saving


def test_unsaved_patches_are_saved_also_if_no_handlers_are_for_the_object_anymore() -> None:
    plan = finish(make(1, handled=1), CREATE, unsaved=(), choose=lambda reason: Choice())
    assert (plan.saving, plan.is_handled) == (Saving.END, False)


@pytest.mark.parametrize(
    ("obj", "unsaved", "expected"),
    [
        (make(deleted=True, finalizers=[FINALIZER]), Reason.UPDATE, True),
        (make(deleted=True, finalizers=[FINALIZER]), Reason.DELETE, False),
        (make(deleted=True, finalizers=[FINALIZER]), None, False),
        (make(), Reason.UPDATE, False),
        (make(2, handled=1), Reason.CREATE, False),
    ],
)
def test_what_could_not_be_saved_does_not_hold_the_deletion(
    obj: KubeObject, unsaved: Reason | None, expected: bool
) -> None:
    assert is_overtaken(detect(obj, snapshots, finalizer=FINALIZER, initial=False), unsaved) is expected


# --- deletions ---


@pytest.mark.parametrize(
    "state",
    [
        {"delayed": after(999).isoformat(), "retries": 5},
        {"success": True},
        {"failure": True},
        {},
    ],
)
@pytest.mark.parametrize("id", ["create", "update", "delete"])
def test_deletions_are_handled_whatever_was_going_on(id: str, state: Any) -> None:
    records = {id: record("update", **state)}
    plan = plan_for(make(2, handled=1, records=records, deleted=True, finalizers=[FINALIZER]), DELETE)
    assert (plan.reason, get_ids(plan.call)) == (Reason.DELETE, ["delete"])
    assert plan.progress[plan.call[0].id].retries == 0


@pytest.mark.parametrize(
    ("outcome", "change", "saving"),
    [
        (SUCCESS, REMOVE, Saving.END),
        (FAILURE, REMOVE, Saving.END),
        (RETRY, None, Saving.PROGRESS),
    ],
)
def test_objects_are_released_when_the_deletion_is_handled(
    outcome: Outcome, change: FinalizerChange | None, saving: Saving
) -> None:
    plan = finish(make(deleted=True, finalizers=["other", FINALIZER]), DELETE, {"delete": outcome})
    assert (plan.finalizer, plan.saving) == (change, saving)


@pytest.mark.parametrize(
    ("company", "change", "saving"),
    [
        (Company(running=True), None, Saving.PROGRESS),
        (Company(running=True, optional=True), None, Saving.PROGRESS),
        (Company(), REMOVE, Saving.END),
    ],
)
@pytest.mark.parametrize("handlers", [DAEMON, DELETE])
def test_objects_are_not_released_while_something_runs_for_them(
    handlers: HandlersOfResource, company: Company, change: FinalizerChange | None, saving: Saving
) -> None:
    obj = make(1, handled=1, deleted=True, finalizers=[FINALIZER])
    plan = finish(obj, handlers, {"delete": SUCCESS}, background=company)
    assert (plan.finalizer, plan.saving) == (change, saving)


@pytest.mark.parametrize("handlers", [CREATE, DELETE, DAEMON])
def test_released_objects_are_left_alone(handlers: HandlersOfResource) -> None:
    plan = finish(make(deleted=True, finalizers=["other"]), handlers, background=Company())
    assert (plan.saving, plan.finalizer, plan.call, plan.spawning) == (Saving.NOTHING, None, (), ())
    assert plan.resumed


# --- the finalizer ---


@pytest.mark.parametrize("obj", [make(), make(2, handled=1)])
@pytest.mark.parametrize("finalizers", [None, [], ["other"]])
def test_the_finalizer_comes_before_the_first_call(obj: KubeObject, finalizers: Any) -> None:
    obj.head.finalizers = finalizers
    plan = finish(obj, DELETE)
    assert (plan.finalizer, plan.saving, plan.call, plan.is_background_kept) == (ADD, Saving.FINALIZER, (), True)
    assert (plan.resumed, plan.is_handled, plan.requeue_after) == (False, False, None)
    assert get_ids(plan_for(save(obj, plan), DELETE).call) in (["create"], ["update"])


def test_the_finalizer_comes_before_the_first_daemon() -> None:
    plan = finish(make(1, handled=1), ONLY_DAEMON, background=Company())
    assert (plan.finalizer, plan.saving, plan.is_background_kept) == (ADD, Saving.FINALIZER, True)
    plan = finish(make(1, handled=1, finalizers=[FINALIZER]), ONLY_DAEMON, background=Company())
    assert (plan.finalizer, plan.is_background_kept, get_ids(plan.spawning)) == (None, False, ["daemon"])


def test_the_finalizer_comes_with_other_changes_if_nothing_is_to_be_called() -> None:
    plan = finish(make(1), declare(delete=kopf.on.delete))
    assert (plan.finalizer, plan.saving, plan.is_handled) == (ADD, Saving.END, True)


@pytest.mark.parametrize(
    ("handlers", "finalizers", "background", "is_required", "change"),
    [
        pytest.param(DELETE, [FINALIZER], None, True, None, id="needed"),
        pytest.param(DELETE, [], None, True, ADD, id="needed-and-absent"),
        pytest.param(DELETE, [FINALIZER], Company(over=True), True, None, id="needed-with-daemons-over"),
        pytest.param(CREATE, [FINALIZER], None, False, REMOVE, id="not-needed"),
        pytest.param(CREATE, ["other"], None, False, None, id="not-needed-and-absent"),
        pytest.param(OPTIONAL, [FINALIZER], None, False, REMOVE, id="optional"),
        pytest.param(OPTIONAL, [], None, False, None, id="optional-and-absent"),
        pytest.param(CREATE, [FINALIZER], Company(running=True), False, None, id="accompanied"),
        pytest.param(
            CREATE,
            [FINALIZER],
            Company(running=True, optional=True),
            False,
            REMOVE,
            id="accompanied-by-optional-ones",
        ),
        pytest.param(DAEMON, [FINALIZER], Company(running=True), True, None, id="with-a-daemon"),
        pytest.param(DAEMON, [FINALIZER], Company(over=True), False, REMOVE, id="with-a-daemon-that-is-over"),
        pytest.param(DAEMON, [], Company(over=True), False, None, id="with-a-daemon-that-is-over-and-absent"),
        pytest.param(ONLY_DAEMON, [FINALIZER], None, True, None, id="only-a-daemon"),
        pytest.param(ONLY_DAEMON, [FINALIZER], Company(), True, None, id="only-a-daemon-not-over"),
        pytest.param(ONLY_DAEMON, [FINALIZER], Company(over=True), False, REMOVE, id="only-a-daemon-that-is-over"),
    ],
)
def test_the_finalizer_is_there_as_long_as_it_is_needed(
    handlers: HandlersOfResource,
    finalizers: list[str],
    background: Company | None,
    is_required: bool,
    change: FinalizerChange | None,
) -> None:
    plan = finish(make(1, handled=1, finalizers=finalizers), handlers, background=background)
    assert plan.finalizer is change
    assert plan.is_required is is_required


@pytest.mark.parametrize(
    ("finalizers", "deleted", "expected"),
    [
        (None, False, (False, False, False)),
        (None, True, (True, False, False)),
        ([], True, (True, False, False)),
        (["other"], True, (True, False, False)),
        ([FINALIZER], False, (False, True, False)),
        ([FINALIZER], True, (True, True, True)),
        ([FINALIZER, "other"], True, (True, True, False)),
        ([FINALIZER, "other"], False, (False, True, False)),
    ],
)
def test_how_deletions_are_blocked(finalizers: Any, deleted: bool, expected: tuple[bool, bool, bool]) -> None:
    blocking = Blocking.of(make(finalizers=finalizers, deleted=deleted), FINALIZER)
    assert (blocking.is_deleted, blocking.is_ours, blocking.is_last) == expected


@pytest.mark.parametrize(
    ("handlers", "background", "removals", "change", "is_contested"),
    [
        pytest.param(CREATE, None, 0, REMOVE, False, id="not-put-back"),
        pytest.param(CREATE, None, 2, REMOVE, False, id="put-back-twice"),
        pytest.param(CREATE, None, 3, None, True, id="put-back-again-and-again"),
        pytest.param(CREATE, None, 4, None, False, id="said-already"),
        pytest.param(CREATE, Company(running=True), 3, None, False, id="kept"),
        pytest.param(DELETE, None, 3, None, False, id="needed"),
    ],
)
def test_it_is_said_once_that_somebody_else_puts_the_finalizer_back(
    handlers: HandlersOfResource,
    background: Company | None,
    removals: int,
    change: FinalizerChange | None,
    is_contested: bool,
) -> None:
    plan = finish(make(1, handled=1, finalizers=[FINALIZER]), handlers, removals=removals, background=background)
    assert (plan.finalizer, plan.is_contested) == (change, is_contested)


def test_a_deletion_is_not_held_by_a_contested_finalizer() -> None:
    obj = make(1, handled=1, finalizers=[FINALIZER], deleted=True)
    assert finish(obj, CREATE, removals=99, choose=lambda reason: Choice()).finalizer is REMOVE


# --- those that no handlers are for ---


@pytest.mark.parametrize(
    ("obj", "change"),
    [
        (make(), None),
        (make(2, handled=1), None),
        (make(1, handled=1, records={"create": record("create", success=True)}), None),
        (make(1, finalizers=["other"]), None),
        (make(1, finalizers=[FINALIZER]), REMOVE),
        (make(1, finalizers=[FINALIZER], deleted=True), REMOVE),
    ],
)
def test_objects_are_not_touched_by_those_who_are_not_for_them(obj: KubeObject, change: FinalizerChange | None) -> None:
    plan = finish(obj, DELETE, choose=lambda reason: Choice())
    assert (plan.saving, plan.finalizer, plan.is_handled, plan.resumed) == (Saving.FINALIZER, change, False, True)


# --- failing filters ---

FILTER_ERROR = FilterError("boom")


def failing(*handlers: ChangingHandler | DaemonHandler, relevant: bool = True, **options: Any) -> Any:
    errors: dict[Any, FilterError] = dict.fromkeys(handlers, FILTER_ERROR)
    choice = Choice(failures=errors, relevant_failures=[*errors.values()] if relevant else [], **options)
    return lambda reason: choice


@pytest.mark.parametrize(
    ("errors", "error", "skipped"),
    [
        (0, FILTER_ERROR, ()),
        (6, FILTER_ERROR, ()),
        (7, None, [FILTER_ERROR]),
    ],
)
def test_objects_are_looked_at_again_when_filters_fail(errors: int, error: Any, skipped: Any) -> None:
    plan = finish(
        make(),
        CREATES,
        {"one": SUCCESS},
        errors=errors,
        choose=failing(CREATES.changing[1], accompanying=CREATES.changing[:1], called=CREATES.changing[:1]),
    )
    assert (plan.error, plan.skipped) == (error, skipped)
    assert get_ids(plan.call) == ["one"]  # the others go on
    assert plan.saving is (Saving.PROGRESS if error else Saving.END)


@pytest.mark.parametrize("errors", [0, 7, 999])
def test_nothing_is_deleted_because_of_failing_filters(errors: int) -> None:
    obj = make(1, handled=1, finalizers=[FINALIZER], deleted=True)
    plan = finish(obj, DELETE, errors=errors, choose=failing(*DELETE.changing))
    assert (plan.finalizer, plan.error) == (None, FILTER_ERROR)


@pytest.mark.parametrize(
    ("obj", "change"),
    [
        (make(1, handled=1, finalizers=[FINALIZER]), None),
        (make(1, handled=1, finalizers=[FINALIZER], deleted=True), REMOVE),
    ],
)
@pytest.mark.parametrize("accompanying", [(), CREATE.changing])
def test_the_finalizer_stays_while_it_is_in_doubt(
    obj: KubeObject, change: FinalizerChange | None, accompanying: Any
) -> None:
    plan = finish(obj, DELETE, choose=failing(*DELETE.changing, relevant=False, accompanying=accompanying))
    assert plan.finalizer is change


# --- only daemons & timers ---


@pytest.mark.parametrize(
    ("obj", "reason", "company", "change", "spawned"),
    [
        (make(), Reason.NOOP, Company(), ADD, []),
        (make(finalizers=[FINALIZER]), Reason.NOOP, Company(), None, ["daemon"]),
        (make(finalizers=[FINALIZER]), Reason.NOOP, Company(over=True), REMOVE, ["daemon"]),
        (make(finalizers=[FINALIZER], deleted=True), Reason.DELETE, Company(running=True), None, ["daemon"]),
        (make(finalizers=[FINALIZER], deleted=True), Reason.DELETE, Company(), REMOVE, ["daemon"]),
        (make(deleted=True), Reason.FREE, Company(running=True), None, []),
    ],
)
def test_objects_with_daemons_only(
    obj: KubeObject, reason: Reason, company: Company, change: FinalizerChange | None, spawned: list[str]
) -> None:
    plan = finish(obj, ONLY_DAEMON, detection=Detection(reason), background=company)
    assert plan.finalizer is change
    assert get_ids(() if plan.is_background_kept else plan.spawning) == spawned
    assert not plan.is_handled
