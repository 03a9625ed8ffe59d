"""Conditions as they are set, read, and merged; nothing is sent here."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from kopf._handlers.conditions import conditions
from kopf._handlers.time_source import TimeSource, time_source
from kopf._values.bodies import Body
from tests.handlers.builders import executing

NOW, BEFORE = "2026-11-27T07:00:00Z", "2026-01-01T00:00:00Z"


class FixedTime(TimeSource):
    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 11, 27, 7, 0, 0, 999999, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def _time() -> Iterator[None]:
    token = time_source.set(FixedTime())
    yield
    time_source.reset(token)


def make_item(type: str = "Ready", status: str = "True", **fields: Any) -> dict[str, Any]:
    known = {"reason": "Up", "message": "", "observedGeneration": 3, "lastTransitionTime": BEFORE}
    return {"type": type, "status": status, **known, **fields}


def make_body(*items: Any, generation: int = 3, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "obj", "generation": generation}, "status": {"conditions": list(items)}, **fields}


def apply(patch: kopf.Patch, body: Any) -> list[Any]:
    changed = patch.apply_to(body)
    assert patch.apply_to(changed) == changed, "it is idempotent"
    return changed["status"]["conditions"]  # type: ignore[no-any-return]


READY = kopf.Condition(True, "Up")


@pytest.mark.parametrize(
    ("before", "condition", "after"),
    [
        ([], READY, [make_item(lastTransitionTime=NOW)]),
        ([make_item()], READY, [make_item()]),
        ([make_item(observedGeneration=2)], READY, [make_item()]),
        ([make_item(message="old")], READY, [make_item()]),
        ([make_item()], kopf.Condition(True, "Up", "new"), [make_item(message="new")]),
        ([make_item()], kopf.Condition(True, "Other"), [make_item(reason="Other")]),
        ([make_item()], kopf.Condition(False, "Up"), [make_item(status="False", lastTransitionTime=NOW)]),
        ([make_item()], kopf.Condition(None, "Up"), [make_item(status="Unknown", lastTransitionTime=NOW)]),
        ([make_item(lastTransitionTime=None)], READY, [make_item(lastTransitionTime=NOW)]),
        ([make_item(lastHeartbeatTime=BEFORE)], READY, [make_item(lastHeartbeatTime=BEFORE)]),
        (
            [make_item("A"), make_item(), make_item("Z")],
            kopf.Condition(False, "Up"),
            [make_item("A"), make_item(status="False", lastTransitionTime=NOW), make_item("Z")],
        ),
        ([make_item("A")], READY, [make_item("A"), make_item(lastTransitionTime=NOW)]),
    ],
)
def test_conditions_are_merged_by_their_types(before: Any, condition: kopf.Condition, after: Any) -> None:
    patch = kopf.Patch()
    conditions(patch, make_body(*before))["Ready"] = condition
    assert apply(patch, make_body(*before)) == after


def test_a_generation_that_the_schema_lacks_is_not_a_change() -> None:
    item = make_item()
    del item["observedGeneration"]
    patch = kopf.Patch()
    conditions(patch, make_body(item))["Ready"] = READY
    assert apply(patch, make_body(item)) == [item]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"status": None},
        {"status": {}},
        {"status": {"conditions": None}},
        {"status": {"conditions": "x"}},
        {"status": "x"},
    ],
)
def test_there_can_be_no_conditions_yet(content: Any) -> None:
    body, patch = {"metadata": {"generation": 3}, **content}, kopf.Patch()
    found = conditions(patch, body)
    assert dict(found) == {}
    found["Ready"] = READY
    assert apply(patch, body) == [make_item(lastTransitionTime=NOW)]


def test_others_can_come_in_between() -> None:
    seen, fresh = make_body(make_item(status="False")), make_body(make_item(), make_item("Theirs"), generation=4)
    patch = kopf.Patch()
    conditions(patch, seen)["Ready"] = READY
    assert apply(patch, fresh) == [make_item(), make_item("Theirs")]  # of what the handler has seen


def test_they_are_read_with_what_is_set_and_removed() -> None:
    body, patch = Body(make_body(make_item("A"), {"type": "B", "status": "False"}, {"type": "C"})), kopf.Patch()
    found = conditions(patch, body)
    assert found == {
        "A": kopf.Condition(True, "Up", "", 3, BEFORE),
        "B": kopf.Condition(False, ""),
        "C": kopf.Condition(None, ""),
    }
    assert [bool(found.get(type)) for type in "ABCD"] == [True, False, False, False]
    assert not patch
    found["D"] = READY
    del found["A"]
    other = conditions(patch, body)  # another handler of the same cycle
    assert list(other) == ["B", "C", "D"]
    assert len(other) == 3
    assert other["D"] == kopf.Condition(True, "Up", "", 3, NOW)
    other["A"] = kopf.Condition(False, "Down")
    assert repr(found["A"]) == repr(other["A"]) == repr(kopf.Condition(False, "Down", "", 3, NOW))
    assert repr(found) == repr(dict(found))
    assert len(patch.fns) == 1
    with pytest.raises(KeyError):
        del found["X"]


def test_several_views_are_of_the_same_conditions() -> None:
    patch, body = kopf.Patch(), make_body()
    one, two = conditions(patch, body), conditions(patch, body)
    one["A"] = READY
    two["B"] = READY
    one["A"] = two["A"]
    assert dict(one) == dict(two)
    assert [*one] == ["A", "B"]
    assert len(patch.fns) == 1


def test_removed_conditions() -> None:
    patch, body = kopf.Patch(), make_body(make_item("A"), make_item("B"))
    del conditions(patch, body)["A"]
    assert apply(patch, body) == [make_item("B")]


def test_the_last_word_counts_once() -> None:
    patch, body = kopf.Patch(), make_body(make_item())
    found = conditions(patch, body)
    found["Ready"] = kopf.Condition(False, "Starting")
    found["Ready"] = READY
    assert apply(patch, body) == [make_item()]


@pytest.mark.parametrize(
    ("type", "condition", "text"),
    [
        (
            "Ready",
            kopf.Condition(True, "all is up"),
            r"CamelCase, got 'all is up'. Did you mean 'AllIsUp'\? Texts go to",
        ),
        ("Ready", kopf.Condition(True, ""), r"The reason of 'Ready' must be one word in CamelCase, got ''\.$"),
        ("Ready", kopf.Condition(True, "3rd"), r"got '3rd'\.$"),
        ("Ready", kopf.Condition(True, "A-B"), r"Did you mean 'AB'\?"),
        ("Ready", kopf.Condition(True, "A:"), r"Did you mean 'A'\?"),
        ("Ready", kopf.Condition(True, "A" * 1025), r"CamelCase, got 'AAA"),
        ("not ready", READY, r"The type of a condition must be one word in CamelCase, e.g. 'Ready', got 'not ready'"),
        ("", READY, "got ''"),
        ("A" * 317, READY, "got 'AAA"),
        ("-A", READY, "got '-A'"),
        ("Ready", kopf.Condition("True", "Up"), "The status of 'Ready' must be True, False, or None, got 'True'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_by_the_conventions_is_refused(type: str, condition: kopf.Condition, text: str) -> None:
    patch = kopf.Patch()
    with pytest.raises(ValueError, match=text):
        conditions(patch, make_body())[type] = condition
    assert not patch


@pytest.mark.parametrize(("type", "reason"), [("example.com/Ready", "A"), ("A.b_c-D", "A,b:c_9"), ("A", "a" * 1024)])
def test_what_the_conventions_permit(type: str, reason: str) -> None:
    patch = kopf.Patch()
    conditions(patch, make_body())[type] = kopf.Condition(True, reason, "x" * 40000)
    [item] = apply(patch, make_body())
    assert (item["type"], item["reason"], len(item["message"])) == (type, reason, 32768)


def test_other_mistakes() -> None:
    with pytest.raises(TypeError, match=r"The 'Ready' must be a kopf.Condition, got True"):
        conditions(kopf.Patch(), make_body())["Ready"] = True  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"Pass the whole object, not its status"):
        conditions(kopf.Patch(), {"conditions": []})
    with pytest.raises(LookupError, match=r"kopf.conditions\(patch, body\)"):
        conditions(kopf.Patch())


def test_the_body_is_that_of_the_handler() -> None:
    with executing(Body(make_body(make_item()))):
        assert list(conditions(kopf.Patch())) == ["Ready"]
