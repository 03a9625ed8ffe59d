from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from kopf._values.fields import FieldPath, ensure, make_pointer, parse_field, parse_pointer, resolve, without
from tests.values.strategies import keys, objects, values


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (None, ()),
        ("", ()),
        ((), ()),
        ([], ()),
        ("spec", ("spec",)),
        ("spec.field", ("spec", "field")),
        (("spec", "field"), ("spec", "field")),
        (["metadata", "labels", "my.domain/name"], ("metadata", "labels", "my.domain/name")),
    ],
)
def test_all_notations_of_fields(field: Any, path: FieldPath) -> None:
    assert parse_field(field) == path


@pytest.mark.parametrize("field", [1, object(), ("spec", 0), ["spec", None], {"spec": "field"}])
def test_anything_else_is_refused_with_the_value_named(field: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a dotted string or a sequence of strings, got"):
        parse_field(field)


SOURCE: dict[str, Any] = {"spec": {"field": "value", "zero": 0, "no": False, "empty": {}, "null": None, "list": [1]}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), SOURCE),
        (("spec", "field"), "value"),
        (("spec", "zero"), 0),
        (("spec", "no"), False),
        (("spec", "empty"), {}),
        (("spec", "null"), "default"),
        (("spec", "absent"), "default"),
        (("spec", "null", "below"), "default"),
        (("spec", "field", "below"), "default"),
        (("spec", "list", "0"), "default"),
        (("absent", "below"), "default"),
    ],
)
def test_resolving(path: FieldPath, value: object) -> None:
    assert resolve(SOURCE, path, "default") == value


def test_resolving_in_nothing() -> None:
    assert resolve(None, ("spec", "field")) is None


@given(objects, keys, keys, values)
def test_what_is_ensured_is_resolved(source: dict[str, Any], key1: str, key2: str, value: object) -> None:
    ensure(source, (key1, key2), value)
    assert resolve(source, (key1, key2)) == value


def test_ensuring_keeps_the_siblings_and_replaces_what_is_not_a_dict() -> None:
    target: dict[str, Any] = {"a": {"x": 1}, "b": "text", "c": None}
    for key in "abc":
        ensure(target, (key, "y"), 2)
    assert target == {"a": {"x": 1, "y": 2}, "b": {"y": 2}, "c": {"y": 2}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a",), {"b": {"x": {}}, "c": {}}),
        (("a", "x"), {"a": {"y": 2}, "b": {"x": {}}, "c": {}}),
        (("b", "x"), {"a": {"x": 1, "y": 2}, "c": {}}),
        (("b", "absent"), {"a": {"x": 1, "y": 2}, "b": {"x": {}}, "c": {}}),
        (("c", "absent"), {"a": {"x": 1, "y": 2}, "b": {"x": {}}, "c": {}}),
        (("a", "x", "below"), {"a": {"x": 1, "y": 2}, "b": {"x": {}}, "c": {}}),
        (("absent", "x"), {"a": {"x": 1, "y": 2}, "b": {"x": {}}, "c": {}}),
    ],
)
def test_dropping_a_field_drops_the_parents_it_leaves_empty(path: FieldPath, expected: object) -> None:
    assert without({"a": {"x": 1, "y": 2}, "b": {"x": {}}, "c": {}}, path) == expected


@given(objects, keys, keys)
def test_dropping_modifies_nothing(source: dict[str, Any], key1: str, key2: str) -> None:
    before = repr(source)
    result = without(source, (key1, key2))
    assert repr(source) == before
    assert resolve(result, (key1, key2)) is None


@pytest.mark.parametrize("path", [(), ("",), ("a", "b"), ("a/b", "c~d"), ("~1", "/~0")])
def test_pointers_can_be_read_again(path: FieldPath) -> None:
    assert parse_pointer(make_pointer(path)) == path


def test_pointers_have_escapes() -> None:
    assert make_pointer(("a/b", "c~d", "~1")) == "/a~1b/c~0d/~01"
