from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster.custom_resources.pruning import prune
from kopf_cluster.kinds.schemas import Schema, fill_defaults, parse, validate

ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


def make(properties: dict[str, Any], **extra: Any) -> Schema:
    return parse({"type": "object", "properties": properties, **extra})


def complaints(value: Any, schema: Schema) -> list[str]:
    return [str(error) for error in validate(value, schema, "")]


@pytest.mark.parametrize(
    ("definition", "value", "expected"),
    [
        ({"type": "integer"}, "x", 'a: Invalid value: "string": a in body must be of type integer: "string"'),
        ({"type": "string"}, 1, 'a: Invalid value: "integer": a in body must be of type string: "integer"'),
        ({"type": "object"}, None, 'a: Invalid value: "null": a in body must be of type object: "null"'),
        ({"type": "boolean"}, 1, 'a: Invalid value: "integer": a in body must be of type boolean: "integer"'),
        ({"type": "integer"}, True, 'a: Invalid value: "boolean": a in body must be of type integer: "boolean"'),
        ({"type": "integer"}, 1.5, 'a: Invalid value: "number": a in body must be of type integer: "number"'),
        ({"type": "integer", "minimum": 1}, 0, "a: Invalid value: 0: a in body should be greater than or equal to 1"),
        ({"type": "integer", "maximum": 1}, 2, "a: Invalid value: 2: a in body should be less than or equal to 1"),
        (
            {"type": "integer", "maximum": 2, "exclusiveMaximum": True},
            2,
            "a: Invalid value: 2: a in body should be less than 2",
        ),
        ({"type": "integer", "multipleOf": 5}, 7, "a: Invalid value: 7: a in body should be a multiple of 5"),
        ({"type": "string", "pattern": "^x+$"}, "y", "a: Invalid value: \"y\": a in body should match '^x+$'"),
        ({"type": "string", "maxLength": 1}, "yy", "a: Too long: may not be more than 1 bytes"),
        ({"type": "string", "maxLength": 1, "pattern": "^x+$"}, "yy", "a: Too long: may not be more than 1 bytes"),
        (
            {"type": "string", "minLength": 3, "pattern": "^x+$"},
            "yy",
            'a: Invalid value: "yy": a in body should be at least 3 chars long',
        ),
        ({"type": "string", "minLength": 1}, "", 'a: Invalid value: "": a in body should be at least 1 chars long'),
        ({"type": "string", "enum": ["x", "y"]}, "z", 'a: Unsupported value: "z": supported values: "x", "y"'),
        (
            {"type": "array", "items": {"type": "integer"}},
            ["x"],
            'a[0]: Invalid value: "string": a[0] in body must be of type integer: "string"',
        ),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["x", "y"],
            "a: Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            ["x", "x"],
            'a[1]: Duplicate value: "x"',
        ),
        (
            {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            },
            [{"k": 1}, {"k": 1}],
            'a[1]: Duplicate value: {"k":1}',
        ),
        ({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}, {}, "a.b: Required value"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"b": "x"},
            'a.b: Invalid value: "string": a.b in body must be of type integer: "string"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            1.5,
            'a: Invalid value: "number": a in body must be of type integer,string: "number"',
        ),
        (
            {"type": "string", "not": {"enum": ["x"]}},
            "x",
            'a: Invalid value: "x": a in body must not validate the schema (not)',
        ),
        (
            {"type": "integer", "allOf": [{"minimum": 3}]},
            1,
            "a: Invalid value: 1: a in body should be greater than or equal to 3",
        ),
    ],
)
def test_what_is_wrong_is_told_as_by_the_api_server(definition: Any, value: Any, expected: str) -> None:
    assert complaints({"a": value}, make({"a": definition})) == [expected]


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ({"type": "integer"}, 1),
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "number"}, 1.5),
        ({"type": "object", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "x"),
        ({"x-kubernetes-int-or-string": True}, 1),
        (ANYTHING, {"a": [1]}),
        (ANYTHING, None),
        ({"type": "string", "anyOf": [{"pattern": "^x"}, {"pattern": "^y"}]}, "yes"),
        ({"type": "string", "oneOf": [{"pattern": "^x"}, {"pattern": "^y"}]}, "yes"),
    ],
)
def test_what_fits_is_accepted(definition: Any, value: Any) -> None:
    assert complaints({"a": value}, make({"a": definition})) == []


def test_pruning_removes_what_is_unknown_and_tells_what() -> None:
    schema = make(
        {
            "spec": {
                "type": "object",
                "properties": {
                    "known": {"type": "string"},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
                    "free": {"type": "object", **ANYTHING, "properties": {"strict": {"type": "object"}}},
                },
            },
        }
    )
    value = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "x"},
        "alien": 1,
        "spec": {
            "known": "x",
            "alien": 1,
            "list": [{"x": "1", "y": "2"}],
            "map": {"k": {"alien": 1}},
            "free": {"alien": 1, "strict": {"alien": 1}},
        },
    }
    removed = list(prune(value, schema, "", root=True))
    assert removed == ["alien", "spec.alien", "spec.list[0].y", "spec.map.k.alien", "spec.free.strict.alien"]
    assert value == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "x"},
        "spec": {"known": "x", "list": [{"x": "1"}], "map": {"k": {}}, "free": {"alien": 1, "strict": {}}},
    }


def test_defaults_are_filled_in_depth_but_not_shared() -> None:
    schema = make(
        {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "array", "default": [1]}}},
            "c": {"type": "string", "default": "x", "nullable": True},
            "d": {"type": "string", "default": "x"},
            "e": {"type": "array", "items": {"type": "object", "properties": {"f": {"default": 5}}}},
        }
    )
    value: Any = {"c": None, "d": None, "e": [{}, {"f": 6}]}
    fill_defaults(value, schema)
    assert value == {"a": {"b": [1]}, "c": None, "d": "x", "e": [{"f": 5}, {"f": 6}]}
    value["a"]["b"].append(2)
    another: Any = {}
    fill_defaults(another, schema)
    assert another["a"] == {"b": [1]}
