"""Validation rules of custom resources as the server applies them; the rules as such are tested apart."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from kopf_cluster.cel import expressions
from tests.cluster.conftest import CRDS, KEXES, Client, causes, make_definition, make_kex


def make_ruled(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    spec = {"type": "object", "x-kubernetes-validations": list(rules), "properties": properties}
    return make_definition(spec=spec)


INT = {"type": "integer"}


async def test_objects_must_obey_the_rules(client: Client) -> None:
    definition = make_ruled(
        {"rule": "self.min <= self.max", "message": "too small"}, min=INT, max={"type": "integer", "default": 10}
    )
    await client.create(CRDS, definition)
    refused = await client.call("POST", KEXES, json=make_kex(spec={"min": 11}))
    assert causes(refused) == [("spec", "FieldValueInvalid")]
    assert 'Kex.example.com "one" is invalid: spec: Invalid value: too small' in refused.body["message"]
    await client.create(KEXES, make_kex(spec={"min": 5}))
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"max": 4}})
    assert causes(refused) == [("spec", "FieldValueInvalid")]
    await client.patch(f"{KEXES}/one", {"spec": {"max": 5}})
    # Rules see only objects that fit in the schema.
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"max": "many"}})
    assert causes(refused) == [("spec.max", "FieldValueTypeInvalid"), ("<nil>", "FieldValueInvalid")]


UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"tier": "tin"}, 'spec.tier: Invalid value: "tin": only gold is good enough'),
        # Limits of values are no obstacle to the rules; what makes an object unfit to be looked at, is.
        (
            {"tier": "tin", "name": "UP"},
            """[spec.name: Invalid value: "UP": spec.name in body should match '^[a-z]+$', """
            'spec.tier: Invalid value: "tin": only gold is good enough]',
        ),
        (
            {"tier": "tin", "name": 5},
            '[spec.name: Invalid value: "integer": spec.name in body must be of type string: "integer", '
            + UNCHECKED
            + "]",
        ),
        (
            {"tier": "tin", "name": "very-long"},
            "[spec.name: Too long: may not be more than 5 bytes, " + UNCHECKED + "]",
        ),
        ({}, "[spec.tier: Required value, " + UNCHECKED + "]"),
        (
            {"name": "UP"},
            """[spec.name: Invalid value: "UP": spec.name in body should match '^[a-z]+$', """
            "spec.tier: Required value, " + UNCHECKED + "]",
        ),
    ],
)
async def test_what_is_wrong_is_told_in_the_order_of_the_server(client: Client, spec: Any, expected: str) -> None:
    tier = {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == 'gold'", "message": "only gold is good enough"}],
    }
    name = {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"}
    await client.create(
        CRDS, make_definition(spec={"type": "object", "required": ["tier"], "properties": {"tier": tier, "name": name}})
    )
    refused = await client.call("POST", KEXES, json=make_kex(spec=spec), expected=422)
    assert refused.body["message"] == f'Kex.example.com "one" is invalid: {expected}'


async def test_without_rules_nothing_is_unchecked(client: Client) -> None:
    await client.create(CRDS, make_definition(spec={"type": "object", "required": ["tier"], "properties": {}}))
    refused = await client.call("POST", KEXES, json=make_kex())
    assert refused.body["message"] == 'Kex.example.com "one" is invalid: spec.tier: Required value'


async def test_transitions_are_checked_and_old_sins_are_forgiven(client: Client) -> None:
    immutable = {**INT, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "it is immutable"}]}
    await client.create(CRDS, make_ruled(size=immutable, name={"type": "string"}))
    await client.create(KEXES, make_kex(spec={"size": 1, "name": "too long"}))
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"size": 2}})
    assert causes(refused) == [("spec.size", "FieldValueInvalid")]

    short = {"type": "string", "x-kubernetes-validations": [{"rule": "size(self) < 5"}]}
    stricter = make_ruled(size=INT, name=short)
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": stricter["spec"]["versions"]}})
    await client.patch(f"{KEXES}/one", {"spec": {"size": 2}})
    assert causes(await client.send_patch(f"{KEXES}/one", {"spec": {"name": "longer yet"}})) == [
        ("spec.name", "FieldValueInvalid")
    ]


async def test_wrong_rules_are_refused_with_the_definition(client: Client) -> None:
    [(place, _)] = causes(await client.call("POST", CRDS, json=make_ruled({"rule": "self.unknown > 0"}, size=INT)))
    assert place == "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert (await client.call("POST", CRDS, json=make_ruled({"rule": 5}, size=INT))).status == 400


async def test_without_the_library_definitions_with_rules_are_refused(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expressions._environment.cache_clear()
    expressions._compile.cache_clear()
    real = builtins.__import__

    def without_library(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cel_expr_python"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_library)
    monkeypatch.delitem(sys.modules, "cel_expr_python", raising=False)
    refused = await client.call("POST", CRDS, json=make_ruled({"rule": "self.size > 3"}, size=INT), expected=422)
    assert "cel-expr-python is not installed" in refused.body["message"]


# ------------------------------------------------------------------------------------------ ratcheting

# The cases are those of the conformance tests of Kubernetes: "CustomResourceValidationRatcheting".
EVERYWHERE: Any = {
    "field": "foo",
    "struct": {"field": "foo"},
    "list": [{"key": "foo", "field": "foo"}],
    "map": {"foo": {"field": "foo"}},
}
PLACES = {"spec.field", "spec.struct.field", "spec.list[0].field", "spec.map[foo].field"}


def everywhere(**field: Any) -> dict[str, Any]:
    """A definition where fields of this schema are in all places where old values can be found."""
    field = {"type": "string", **field}
    struct = {"type": "object", "properties": {"field": field}}
    item = {"type": "object", "properties": {"key": {"type": "string"}, "field": field}, "required": ["key"]}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"], "items": item}
    return make_definition(
        spec={
            "type": "object",
            "properties": {
                "field": field,
                "struct": struct,
                "list": keyed,
                "map": {"type": "object", "additionalProperties": struct},
                "other": {"type": "string"},
            },
        }
    )


async def restrict(client: Client, definition: dict[str, Any]) -> None:
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": definition["spec"]["versions"]}})


@pytest.mark.parametrize(
    "limit",
    [
        {"enum": ["bar"]},
        {"pattern": "^b"},
        {"x-kubernetes-validations": [{"rule": "self == 'bar'"}]},
    ],
)
async def test_what_is_unchanged_is_not_held_against_an_update(client: Client, limit: Any) -> None:
    await client.create(CRDS, everywhere())
    await client.create(KEXES, make_kex(spec=EVERYWHERE))
    await restrict(client, everywhere(**limit))
    await client.patch(f"{KEXES}/one", {"metadata": {"labels": {"a": "b"}}})
    await client.patch(
        f"{KEXES}/one",
        {"spec": {"other": "x", "list": [{"key": "new", "field": "bar"}, {"key": "foo", "field": "foo"}]}},
    )
    worse: Any = {
        "field": "fool",
        "struct": {"field": "fool"},
        "list": [{"key": "foo", "field": "fool"}],
        "map": {"foo": {"field": "fool"}},
    }
    refused = await client.send_patch(f"{KEXES}/one", {"spec": worse})
    places = {place.replace("map.foo.", "map[foo].") for place, _ in causes(refused)}
    assert places - {"<nil>"} == PLACES


@pytest.mark.parametrize("kind", ["atomic", "set"])
@pytest.mark.parametrize("limit", [{"enum": ["x"]}, {"x-kubernetes-validations": [{"rule": "self != 'foo'"}]}])
async def test_items_of_changed_lists_are_held_against_it(client: Client, kind: str, limit: Any) -> None:
    def listed(**items: Any) -> Any:
        return make_definition(
            spec={
                "type": "object",
                "properties": {
                    "list": {"type": "array", "x-kubernetes-list-type": kind, "items": {"type": "string", **items}}
                },
            }
        )

    await client.create(CRDS, listed())
    await client.create(KEXES, make_kex(spec={"list": ["foo", "bar"]}))
    await restrict(client, listed(**limit))
    await client.patch(f"{KEXES}/one", {"metadata": {"labels": {"a": "b"}}})
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"list": ["foo", "bar", "x"]}})
    assert causes(refused)[0][0] == "spec.list[0]"


async def test_transition_rules_are_checked_even_if_nothing_changes(client: Client) -> None:
    await client.create(CRDS, everywhere())
    await client.create(KEXES, make_kex(spec=EVERYWHERE))
    await restrict(client, everywhere(maxLength=5, **{"x-kubernetes-validations": [{"rule": "self != oldSelf"}]}))
    for patch in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"other": "x"}}, {}):
        refused = await client.send_patch(f"{KEXES}/one", patch)
        assert {place for place, _ in causes(refused)} == PLACES
