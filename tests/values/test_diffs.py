from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given

from kopf._values.bodies import Body
from kopf._values.diffs import Diff, DiffItem, DiffOperation, diff
from kopf._values.fields import ensure
from kopf._values.patches import merge, thaw
from tests.values.strategies import nullables, objects

ADD, CHANGE, REMOVE = DiffOperation.ADD, DiffOperation.CHANGE, DiffOperation.REMOVE


@pytest.mark.parametrize(
    ("old", "new", "items"),
    [
        (None, None, []),
        ({}, {}, []),
        ("x", "x", []),
        ("x", "y", [(CHANGE, (), "x", "y")]),
        (None, {"a": 1}, [(ADD, (), None, {"a": 1})]),
        ({"a": 1}, None, [(REMOVE, (), {"a": 1}, None)]),
        ({"a": 1}, {}, [(REMOVE, ("a",), 1, None)]),
        ({}, {"a": 1}, [(ADD, ("a",), None, 1)]),
        ({}, {"a": {"b": 1}}, [(ADD, ("a",), None, {"b": 1})]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [(CHANGE, ("a", "b"), 1, 2)]),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, [(REMOVE, ("a", "b"), 1, None), (ADD, ("a", "c"), None, 1)]),
        ({"a": {"b": 1}}, {"a": "b"}, [(CHANGE, ("a",), {"b": 1}, "b")]),
        ({"a": 0}, {"a": ""}, [(CHANGE, ("a",), 0, "")]),
        ({"a": {}}, {}, [(REMOVE, ("a",), {}, None)]),
    ],
)
def test_what_is_a_change(old: Any, new: Any, items: list[Any]) -> None:
    assert [tuple(item) for item in diff(old, new)] == items


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": {"b": None}}, {"a": {}}),
    ],
)
def test_none_is_absence(old: Any, new: Any) -> None:
    assert diff(old, new) == ()


@pytest.mark.parametrize(
    ("old", "new", "item"),
    [
        ({"a": None}, {"a": 1}, (ADD, ("a",), None, 1)),
        ({"a": 1}, {"a": None}, (REMOVE, ("a",), 1, None)),
    ],
)
def test_changes_from_and_to_none(old: Any, new: Any, item: Any) -> None:
    assert diff(old, new) == (item,)


def test_lists_are_compared_as_a_whole() -> None:
    assert diff({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ((CHANGE, ("a",), [1, {"b": 2}], [1, {"b": 3}]),)
    assert diff({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == ()


def test_all_mappings_are_alike() -> None:
    old = Body({"spec": {"field": 1}}).spec
    assert diff(old, {"field": 1}) == ()
    assert diff(old, MappingProxyType({"field": 2})) == ((CHANGE, ("field",), 1, 2),)


def test_items_are_in_the_order_of_the_fields_and_new_ones_are_the_last() -> None:
    items = diff({"z": 1, "y": {"b": 1, "a": 1}, "x": 1}, {"new": 1, "x": 2, "y": {"a": 2, "c": 1, "b": 2}, "z": 2})
    assert [item.field for item in items] == [("z",), ("y", "b"), ("y", "a"), ("y", "c"), ("x",), ("new",)]


def test_diffs_are_shown_as_in_the_log_lines() -> None:
    assert repr(diff({"spec": {"field": "value"}}, {"spec": {"field": "new"}})) == (
        "(('change', ('spec', 'field'), 'value', 'new'),)"
    )
    assert repr(diff(None, {"spec": {}})) == "(('add', (), None, {'spec': {}}),)"


def test_operations_are_strings() -> None:
    assert [str(op) for op in DiffOperation] == ["add", "change", "remove"]
    assert [f"{op}" for op in DiffOperation] == ["add", "change", "remove"]
    assert json.dumps(list(DiffOperation)) == '["add", "change", "remove"]'
    assert ADD == "add"


def test_items_are_tuples_with_names() -> None:
    (item,) = diff({"a": 1}, {"a": 2})
    op, field, old, new = item
    assert isinstance(item, DiffItem)
    assert (item.operation, item.op, item.field, item.old, item.new) == (op, op, field, old, new)


def test_diffs_are_sequences_which_are_false_when_empty() -> None:
    changes = diff({"a": 1, "b": 1}, {"a": 2, "b": 2})
    assert isinstance(changes, Diff)
    assert len(changes) == 2
    assert changes[0].field == ("a",)
    assert hash(changes) == hash(tuple(changes))
    assert changes
    assert not diff({}, {})


@given(nullables)
def test_nothing_has_changed_in_a_copy(value: Any) -> None:
    assert diff(value, thaw(value)) == ()


@given(objects, objects)
def test_a_diff_tells_all_that_is_needed_to_get_from_old_to_new(old: Any, new: Any) -> None:
    patch: dict[str, Any] = {}
    for item in diff(old, new):
        ensure(patch, item.field, item.new)
        assert json.dumps(item.old) != json.dumps(item.new)
    result = thaw(old)
    _replace(result, patch, new)
    assert result == new


def _replace(target: dict[str, Any], patch: dict[str, Any], new: dict[str, Any]) -> None:
    """Merge, except for the values that are added or changed as a whole: a merge would drop the emptied dicts."""
    merge(target, {key: value for key, value in patch.items() if value is None})
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _replace(target[key], value, new[key])
        elif value is not None:
            target[key] = value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([True], [1]),
        ([0], [False]),
        ([[True]], [[1]]),
        ([{"a": True}], [{"a": 1}]),
        ([{"a": [1]}], [{"a": [True]}]),
    ],
)
def test_booleans_are_not_numbers_on_any_level_of_lists(old: Any, new: Any) -> None:
    assert diff({"field": old}, {"field": new}) == (("change", ("field",), old, new),)
    assert diff({"field": old}, {"field": old}) == ()
    assert diff({"field": [*old, 1.0]}, {"field": [*old, 1]}) == ()
