"""Filters by the current state of the object; those by its changes are tested separately."""

from __future__ import annotations

from typing import Any

import pytest

from kopf._handlers.filter_criteria import ABSENT, PRESENT, all_, any_, none_, not_
from kopf._handlers.filters import matches, matches_field
from tests.handlers.builders import make_changing_cause, make_resource_cause, make_watching_handler

VALUES: list[tuple[Any, Any, bool]] = [
    # The criterion, the value in the object (None if absent), whether it matches.
    ("value", "value", True),
    ("value", "other", False),
    ("value", "", False),
    ("value", None, False),
    ("", "", True),
    ("", "value", False),
    ("", None, False),
    (PRESENT, "value", True),
    (PRESENT, "", True),
    (PRESENT, None, False),
    (ABSENT, None, True),
    (ABSENT, "value", False),
    (ABSENT, "", False),
    (lambda value, **_: value == "value", "value", True),
    (lambda value, **_: value == "value", "other", False),
    (lambda value, **_: value is None, None, True),
    (lambda value, **_: "truthy", "value", True),
    (lambda value, **_: [], "value", False),
    (not_(lambda value, **_: value == "value"), "value", False),
]


@pytest.mark.parametrize("stanza", ["labels", "annotations"])
@pytest.mark.parametrize(("criterion", "value", "expected"), VALUES)
def test_labels_and_annotations(stanza: str, criterion: Any, value: Any, expected: bool) -> None:
    content = {"other": "x"} if value is None else {"other": "x", "key": value}
    filters: Any = {stanza: {"key": criterion}}
    handler = make_watching_handler(**filters)
    assert matches(handler, make_resource_cause({"metadata": {stanza: content}})) is expected


@pytest.mark.parametrize("stanza", ["labels", "annotations"])
@pytest.mark.parametrize("metadata", [{}, {"labels": None, "annotations": None}, {"labels": {}, "annotations": {}}])
@pytest.mark.parametrize(("criterion", "expected"), [("value", False), (PRESENT, False), (ABSENT, True)])
def test_objects_with_no_labels_or_annotations(stanza: str, metadata: Any, criterion: Any, expected: bool) -> None:
    filters: Any = {stanza: {"key": criterion}}
    handler = make_watching_handler(**filters)
    assert matches(handler, make_resource_cause({"metadata": metadata})) is expected


@pytest.mark.parametrize(
    ("criterion", "value", "expected"),
    [
        *VALUES,
        (None, "value", True),  # no criterion for the value of the field is for its presence
        (None, "", True),
        (None, None, False),
        (False, False, True),
        (False, None, False),
        (0, 0, True),
        ({"a": 1}, {"a": 1}, True),
        ([1], [1], True),
        ([1], [1, 2], False),
    ],
)
def test_fields(criterion: Any, value: Any, expected: bool) -> None:
    handler = make_watching_handler(field=("spec", "key"), value=criterion)
    cause = make_resource_cause({"spec": {"other": "x"} if value is None else {"other": "x", "key": value}})
    assert matches_field(handler, cause) is expected


@pytest.mark.parametrize("body", [{}, {"spec": None}, {"spec": "text"}, {"spec": {"key": None}}])
def test_fields_are_absent_when_their_parents_are(body: Any) -> None:
    cause = make_resource_cause(body)
    assert not matches_field(make_watching_handler(field=("spec", "key")), cause)
    assert matches_field(make_watching_handler(field=("spec", "key"), value=ABSENT), cause)


@pytest.mark.parametrize("field", [("status", "x"), ("metadata", "labels", "my.domain/x"), ("kind",)])
def test_any_fields_can_be_checked(field: tuple[str, ...]) -> None:
    body = {"kind": "v", "metadata": {"labels": {"my.domain/x": "v"}}, "status": {"x": "v"}}
    assert matches_field(make_watching_handler(field=field, value="v"), make_resource_cause(body))
    assert not matches_field(make_watching_handler(field=field, value="w"), make_resource_cause(body))


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, True),
        (lambda spec, **_: spec.get("field") in spec.get("items", []), True),
        (lambda name, namespace, uid, **_: (name, namespace, uid) == ("x", "ns", "u"), True),
        (lambda labels, **_: labels.get("l") == "other", False),
        (lambda **_: 1, True),
        (lambda **_: None, False),
    ],
)
def test_callbacks_of_the_whole_object(when: Any, expected: bool) -> None:
    body = {
        "metadata": {"name": "x", "namespace": "ns", "uid": "u", "labels": {"l": "v"}},
        "spec": {"field": 1, "items": [1]},
    }
    assert matches(make_watching_handler(when=when), make_resource_cause(body)) is expected


def test_without_filters_everything_matches() -> None:
    handler = make_watching_handler()
    assert matches(handler, make_resource_cause({}))
    assert matches_field(handler, make_resource_cause({}))


@pytest.mark.parametrize("labels", [{"l": "v"}, {"l": "other"}])
@pytest.mark.parametrize("annotations", [{"a": "v"}, {"a": "other"}])
@pytest.mark.parametrize("when", [True, False])
def test_all_criteria_must_be_satisfied(labels: Any, annotations: Any, when: bool) -> None:
    handler = make_watching_handler(labels=labels, annotations=annotations, when=lambda **_: when)
    cause = make_resource_cause({"metadata": {"labels": {"l": "v"}, "annotations": {"a": "v"}}})
    assert matches(handler, cause) is (labels == {"l": "v"} and annotations == {"a": "v"} and when)


def test_several_labels_must_all_match() -> None:
    handler = make_watching_handler(labels={"one": "1", "two": PRESENT})
    assert matches(handler, make_resource_cause({"metadata": {"labels": {"one": "1", "two": "x"}}}))
    assert not matches(handler, make_resource_cause({"metadata": {"labels": {"one": "1"}}}))


def test_callbacks_get_the_kwargs_of_the_handler_and_the_value_as_the_only_positional_one() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def check(*args: Any, **kwargs: Any) -> bool:
        calls.append((args, kwargs))
        return True

    handler = make_watching_handler(
        labels={"l": check}, annotations={"a": check}, when=check, field=("spec", "f"), value=check, param=123
    )
    cause = make_changing_cause({"metadata": {"labels": {"l": "v"}}, "spec": {"f": 1}}, indices={"idx": "index"})
    assert matches(handler, cause)
    assert [args for args, _ in calls] == [("v",), (None,), (1,), ()]
    for _, kwargs in calls:
        assert kwargs == {**cause.kwargs, "param": 123}
        assert kwargs["param"] == 123
        assert kwargs["idx"] == "index"
        assert kwargs["new"] == {"spec": {"f": 1}}


def test_callbacks_are_not_called_if_the_cheaper_criteria_are_not_satisfied() -> None:
    def fail(*_: Any, **__: Any) -> bool:
        raise AssertionError

    handler = make_watching_handler(labels={"l": "v"}, annotations={"a": fail}, when=fail)
    assert not matches(handler, make_resource_cause({}))


# --- combinators ---


def is_kopf(name: str, **_: Any) -> bool:
    return name.startswith("kopf-")


def is_long(name: str, **_: Any) -> bool:
    return len(name) > 8


@pytest.mark.parametrize(
    ("name", "is_not", "is_all", "is_any", "is_none"),
    [
        ("kopf-example", False, True, True, False),
        ("kopf-ex", False, False, True, False),
        ("long-example", True, False, True, False),
        ("short", True, False, False, True),
    ],
)
def test_combinators(name: str, is_not: bool, is_all: bool, is_any: bool, is_none: bool) -> None:
    assert not_(is_kopf)(name=name) is is_not
    assert all_([is_kopf, is_long])(name=name) is is_all
    assert any_([is_kopf, is_long])(name=name) is is_any
    assert none_([is_kopf, is_long])(name=name) is is_none


def test_combinators_of_nothing_are_as_the_builtin_functions() -> None:
    assert all_([])() is True
    assert any_([])() is False
    assert none_([])() is True


def test_combinators_pass_the_value_on_and_can_be_nested() -> None:
    def is_some(value: Any, **_: Any) -> bool:
        return str(value).startswith("some")

    def is_label(value: Any, **_: Any) -> bool:
        return str(value).endswith("label")

    handler = make_watching_handler(labels={"l": all_([is_some, not_(any_([is_label]))])})
    assert matches(handler, make_resource_cause({"metadata": {"labels": {"l": "some-value"}}}))
    assert not matches(handler, make_resource_cause({"metadata": {"labels": {"l": "some-label"}}}))


def test_combinators_evaluate_no_more_than_needed() -> None:
    def fail(**_: Any) -> bool:
        raise AssertionError

    assert any_([lambda **_: True, fail])()
    assert not all_([lambda **_: False, fail])()
    assert not none_([lambda **_: True, fail])()
