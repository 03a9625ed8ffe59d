"""The states of handlers on an object: what is found there, and which records go."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kopf._controller.changes.handler_states import HandlerState, SavedStates
from kopf._storage.progress import AnnotationsProgressStorage, ProgressStorage, StatusProgressStorage
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch, merge, thaw
from kopf._values.reasons import Reason
from tests.handlers.builders import make_changing_handler

NOW = datetime.datetime(2026, 11, 28, 0, 30, tzinfo=datetime.UTC)
NOTHING = Body({"metadata": {}})
ONE, TWO, THREE, FIELD = (HandlerId(key) for key in ("one", "two", "three", "one/spec.field"))
HANDLERS = [make_changing_handler(key) for key in (ONE, TWO, THREE)]


@pytest.fixture(params=[AnnotationsProgressStorage, StatusProgressStorage])
def storage(request: pytest.FixtureRequest) -> ProgressStorage:
    made: ProgressStorage = request.param()
    return made


def put(storage: ProgressStorage, body: Body = NOTHING, /, **records: Any) -> Body:
    """Put these records on the object."""
    patch = Patch()
    for key, record in records.items():
        storage.store(key=HandlerId(key), record=record, body=body, patch=patch)
    return apply(body, patch)


def apply(body: Body, patch: Patch) -> Body:
    result = thaw(body)
    merge(result, patch)
    return Body(result)


def load(storage: ProgressStorage, body: Body, **remembered: HandlerState) -> SavedStates:
    known = {HandlerId(key): state for key, state in remembered.items()}
    return SavedStates(storage, body, NOW, known, (ONE, TWO, THREE), body.object)


def list_records(storage: ProgressStorage, body: Body, *keys: HandlerId) -> list[HandlerId]:
    return [key for key in keys or (ONE, TWO, THREE, FIELD) if storage.fetch(key=key, body=body) is not None]


class Flushed(AnnotationsProgressStorage):
    """A storage of users that sends everything at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1


# --- the state as of the beginning of the creation ---

ESSENCE = '{"spec":{"a":1}}'
OTHER = '{"spec":{"a":2}}'


def test_nobody_keeps_a_baseline(storage: ProgressStorage) -> None:
    saved = load(storage, put(storage, one={"purpose": "create", "retries": 1}))
    assert saved.find_baseline((ONE, TWO)) is None


def test_the_first_handler_that_keeps_a_baseline_tells_it(storage: ProgressStorage) -> None:
    records = {"two": {"purpose": "create", "baseline": ESSENCE}, "three": {"purpose": "create", "baseline": OTHER}}
    saved = load(storage, put(storage, one={"purpose": "create", "retries": 1}, **records))
    assert saved.find_baseline((ONE, TWO, THREE)) == ESSENCE.encode()
    assert saved.find_baseline((ONE, THREE, TWO)) == OTHER.encode()


@pytest.mark.parametrize("purpose", ["update", "delete", "resume", None])
def test_baselines_are_of_creations_only(storage: ProgressStorage, purpose: str | None) -> None:
    saved = load(storage, put(storage, one={"purpose": purpose, "baseline": ESSENCE}))
    assert saved.find_baseline((ONE,)) is None


@pytest.mark.parametrize("malformed", ["", "{", "[]", "1", '{"metadata": 1}', '{"metadata": {"labels": 1}}'])
def test_malformed_baselines_are_skipped(storage: ProgressStorage, malformed: str) -> None:
    records = {"one": {"purpose": "create", "baseline": malformed}, "two": {"purpose": "create", "baseline": ESSENCE}}
    saved = load(storage, put(storage, **records))
    assert saved.find_baseline((ONE,)) is None
    assert saved.find_baseline((ONE, TWO)) == ESSENCE.encode()


# --- records for other reasons ---


def test_records_for_other_reasons_are_dropped_with_those_of_their_subhandlers(storage: ProgressStorage) -> None:
    body = put(
        storage,
        one={"purpose": "update", "subrefs": [FIELD]},
        two={"purpose": "delete", "retries": 1},
        **{FIELD: {"purpose": "update", "success": True}},
    )
    patch = Patch()
    load(storage, body).drop_outdated(HANDLERS, Reason.DELETE, (), patch)
    assert list_records(storage, apply(body, patch)) == [TWO]


def test_records_of_handlers_that_are_involved_stay(storage: ProgressStorage) -> None:
    body = put(storage, one={"purpose": "update", "retries": 1}, two={"purpose": "create", "retries": 2})
    patch = Patch()
    load(storage, body).drop_outdated(HANDLERS, Reason.DELETE, {ONE}, patch)
    assert list_records(storage, apply(body, patch)) == [ONE]


def test_nothing_is_dropped_if_there_is_nothing(storage: ProgressStorage) -> None:
    patch = Patch()
    load(storage, NOTHING).drop_outdated(HANDLERS, Reason.DELETE, (), patch)
    assert not patch


@pytest.mark.parametrize(("purpose", "flushes"), [("update", 1), ("delete", 0)])
def test_what_is_dropped_is_flushed(purpose: str, flushes: int) -> None:
    storage = Flushed()
    saved = load(storage, put(storage, one={"purpose": purpose, "retries": 1}))
    saved.drop_outdated(HANDLERS, Reason.DELETE, (), Patch())
    assert storage.flushes == flushes


# --- recalling and storing ---


def test_states_in_memory_are_newer_than_the_ones_on_the_object(storage: ProgressStorage) -> None:
    known = HandlerState(NOW, purpose="create", retries=5)
    saved = load(storage, put(storage, one={"purpose": "create", "retries": 1}), one=known)
    assert saved.recall(ONE) is known
    assert not saved.is_blank


def test_objects_without_records_are_not_asked_for_each() -> None:
    storage = AnnotationsProgressStorage()
    saved = load(storage, NOTHING)
    assert (saved.is_absent, saved.is_blank, saved.recall(ONE)) == (True, True, None)
    assert load(storage, put(storage, two={"purpose": "create"})).is_absent is False
    assert SavedStates(storage, NOTHING, NOW, {}).is_absent is False  # nobody has looked


def test_stored_states_are_on_the_object(storage: ProgressStorage) -> None:
    saved, patch = load(storage, NOTHING), Patch()
    saved.store({ONE: HandlerState(NOW, purpose="create", retries=3)}, patch)
    assert (saved.is_absent, saved.is_blank) == (False, False)
    found = load(storage, apply(NOTHING, patch)).recall(ONE)
    assert found == HandlerState(NOW, purpose="create", retries=3)
