"""
Structural schemas of custom resources against the library ``jsonschema``, and simple models of pruning and defaults.
"""

from __future__ import annotations

import copy
import itertools
import sys
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.conftest import CRDS
from tests.cluster.rounds.wire import Wire

GROUP = "schemas.example.com"

numbers = itertools.count()

KEYS = st.sampled_from("abc")
STRINGS = st.sampled_from(["", "x", "xyz", "5", "\u00e4\u00e4"])
INTEGERS = st.integers(-5, 5)


_STRING = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(1, 3),
        "pattern": st.sampled_from(["^x", "[0-9]$"]),
    },
)
_ENUM = st.builds(lambda values: {"type": "string", "enum": values}, st.lists(STRINGS, min_size=1, unique=True))
_INTEGER = st.fixed_dictionaries(
    {"type": st.just("integer")},
    optional={"minimum": st.integers(-3, 1), "maximum": st.integers(0, 3), "multipleOf": st.sampled_from([1, 2, 3])},
)
_EXCLUSIVE = st.builds(lambda low: {"type": "number", "minimum": low, "exclusiveMinimum": True}, INTEGERS)
_NOT = st.builds(lambda value: {"type": "integer", "not": {"enum": [value]}}, INTEGERS)
_ANY_OF = st.builds(
    lambda one, two: {"type": "integer", "anyOf": [{"minimum": one}, {"maximum": two}]}, INTEGERS, INTEGERS
)
_ONE_OF = st.builds(
    lambda one, two: {"type": "integer", "oneOf": [{"minimum": one}, {"maximum": two}]}, INTEGERS, INTEGERS
)
_ALL_OF = st.builds(
    lambda one, two: {"type": "integer", "allOf": [{"minimum": one}, {"maximum": two}]}, INTEGERS, INTEGERS
)
LEAVES = st.one_of(_STRING, _ENUM, _INTEGER, _EXCLUSIVE, _NOT, _ANY_OF, _ONE_OF, _ALL_OF, st.just({"type": "boolean"}))


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(KEYS, inner, min_size=1, max_size=3)},
        optional={"required": st.lists(KEYS, min_size=1, max_size=2, unique=True)},
    )


def _extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _objects(inner),
        st.builds(lambda items: {"type": "object", "additionalProperties": items}, inner),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 1), "maxItems": st.integers(1, 2)},
        ),
    )


SCHEMAS = _objects(st.recursive(LEAVES, _extend, max_leaves=6))
VALUES = st.recursive(
    st.booleans() | INTEGERS | st.just(0.5) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def fitting(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Draw a value that has the right types mostly; the limits are for the luck."""
    if draw(st.integers(0, 14)) == 0:
        return draw(VALUES)
    match schema["type"]:
        case "string":
            return draw(st.sampled_from(schema.get("enum") or ["x", "x5", "5"]) | STRINGS)
        case "integer":
            return draw(INTEGERS)
        case "number":
            return draw(INTEGERS | st.just(0.5))
        case "boolean":
            return draw(st.booleans())
        case "array":
            return draw(st.lists(fitting(schema["items"]), max_size=3))
    properties = schema.get("properties", {})
    names = draw(st.sets(st.sampled_from([*properties, *schema.get("required", []), "d"]))) if properties else set()
    value = {name: draw(fitting(properties[name]) if name in properties else VALUES) for name in sorted(names)}
    if "additionalProperties" in schema:
        value = draw(st.dictionaries(KEYS, fitting(schema["additionalProperties"]), max_size=2))
    return value


def prune(value: Any, schema: dict[str, Any]) -> Any:
    """Drop what is not in the schema, as simply as possible."""
    if isinstance(value, dict) and "additionalProperties" in schema:
        return {key: prune(item, schema["additionalProperties"]) for key, item in value.items()}
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {key: prune(item, known[key]) for key, item in value.items() if key in known}
    if isinstance(value, list) and "items" in schema:
        return [prune(item, schema["items"]) for item in value]
    return value


def fill(value: Any, schema: dict[str, Any]) -> Any:
    """Add the defaults, as simply as possible: those that are added are filled, too."""
    if isinstance(value, dict) and "additionalProperties" in schema:
        return {key: fill(item, schema["additionalProperties"]) for key, item in value.items()}
    if isinstance(value, dict):
        known = schema.get("properties", {})
        defaults = {key: sub["default"] for key, sub in known.items() if "default" in sub}
        return {key: fill(item, known.get(key, {})) for key, item in {**defaults, **value}.items()}
    if isinstance(value, list) and "items" in schema:
        return [fill(item, schema["items"]) for item in value]
    return value


def is_valid(value: Any, schema: dict[str, Any]) -> bool:
    sys.modules.setdefault("rfc3987_syntax", cast(Any, None))  # a format that takes seconds to import, and is not used
    import jsonschema  # it takes a while, and every process of the tests imports this file

    # It is the draft 4, as exclusive limits are flags. The types of JSON are distinguished there as in Kubernetes.
    return bool(jsonschema.Draft4Validator(schema).is_valid(value))


class Kind:
    """A new custom resource with the schema for the spec."""

    def __init__(self, wire: Wire, schema: dict[str, Any]) -> None:
        self._wire = wire
        self._name = f"kind{next(numbers)}s"
        self._path = f"/apis/{GROUP}/v1/namespaces/default/{self._name}"
        answer = wire.send(
            "POST",
            CRDS,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{self._name}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "scope": "Namespaced",
                    "names": {"plural": self._name, "kind": self._name.title()},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
                        }
                    ],
                },
            },
        )
        self.made = answer.status == 201
        assert answer.status in (201, 422), answer

    def create(self, spec: Any) -> tuple[int, Any]:
        answer = self._wire.send(
            "POST",
            self._path,
            {"apiVersion": f"{GROUP}/v1", "kind": self._name.title(), "metadata": {"generateName": "x-"}, "spec": spec},
        )
        return answer.status, answer.json

    def replace(self, obj: Any) -> tuple[int, Any]:
        answer = self._wire.send("PUT", f"{self._path}/{obj['metadata']['name']}", obj)
        return answer.status, answer.json

    def remove(self) -> None:
        assert self._wire.send("DELETE", f"{CRDS}/{self._name}.{GROUP}").status == 200


def check(wire: Wire, schema: dict[str, Any], specs: list[Any]) -> None:
    """Compare what the server makes of the values with the models and the library."""
    kind = Kind(wire, schema)
    try:
        for spec in specs:
            before = copy.deepcopy(spec)
            expected = fill(prune(spec, schema), schema)
            assert fill(prune(expected, schema), schema) == expected  # or the models are wrong
            status, obj = kind.create(spec)
            assert spec == before
            if is_valid(expected, schema):
                assert (status, obj["spec"]) == (201, expected)
                assert kind.replace(obj) == (200, obj)  # once clean, forever clean: nothing changes
            else:
                assert (status, obj["reason"]) == (422, "Invalid"), obj
                assert obj["details"]["causes"]
    finally:
        kind.remove()


@st.composite
def defaulted(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Add valid defaults to some of the properties, as the API demands: pruned and valid on their own."""
    result = {**schema}
    if "properties" in schema:
        result["properties"] = {}
        for name, sub in schema["properties"].items():
            made = draw(defaulted(sub))
            value = fill(prune(draw(fitting(sub)), made), made)
            if draw(st.booleans()) and is_valid(value, made):
                made = {**made, "default": value}
            result["properties"][name] = made
    for key in ("items", "additionalProperties"):
        if key in schema:
            result[key] = draw(defaulted(schema[key]))
    return result


def test_validation_pruning_and_defaults(wire: Wire) -> None:
    @given(
        SCHEMAS.flatmap(defaulted).flatmap(
            lambda schema: st.tuples(st.just(schema), st.lists(fitting(schema), min_size=2, max_size=8))
        )
    )
    def attempt(drawn: tuple[dict[str, Any], list[Any]]) -> None:
        schema, specs = drawn
        check(wire, schema, [{}, *specs])

    attempt()


def test_definitions_with_wrong_defaults_are_refused(wire: Wire) -> None:
    @given(LEAVES, VALUES)
    def attempt(leaf: dict[str, Any], default: Any) -> None:
        kind = Kind(wire, {"type": "object", "properties": {"a": {**leaf, "default": default}}})
        assert kind.made is is_valid(default, leaf), (leaf, default)
        if kind.made:
            kind.remove()

    attempt()
