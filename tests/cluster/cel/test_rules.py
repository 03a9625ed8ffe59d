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
    definition = make_ruled({"rule": "self.min <= self.max", "message": "too small"}, min=INT,
                            max={"type": "integer", "default": 10})
    await client.create(CRDS, definition)
    refused = await client.call("POST", KEXES, json=make_kex(spec={"min": 11}))
    assert causes(refused) == [("spec", "FieldValueInvalid")]
    assert 'Kex.example.com "one" is invalid: spec: Invalid value: "object": too small' in refused.body["message"]
    await client.create(KEXES, make_kex(spec={"min": 5}))
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"max": 4}})
    assert causes(refused) == [("spec", "FieldValueInvalid")]
    await client.patch(f"{KEXES}/one", {"spec": {"max": 5}})
    # Rules see only objects that fit in the schema.
    refused = await client.send_patch(f"{KEXES}/one", {"spec": {"max": "many"}})
    assert causes(refused) == [("spec.max", "FieldValueTypeInvalid")]


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
        ("spec.name", "FieldValueInvalid")]


@pytest.mark.parametrize(("rule", "field"), [
    ({"rule": "self.unknown > 0"},
     "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"),
    ({"rule": 5}, "spec"),
])
async def test_wrong_rules_are_refused_with_the_definition(client: Client, rule: Any, field: str) -> None:
    [(place, _)] = causes(await client.call("POST", CRDS, json=make_ruled(rule, size=INT)))
    assert place == field


async def test_without_the_library_definitions_with_rules_are_refused(
        client: Client, monkeypatch: pytest.MonkeyPatch,
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
    refused = await client.call("POST", CRDS, json=make_ruled({"rule": "self.size > 3"}, size=INT))
    assert refused.status == 422
    assert "cel-expr-python is not installed" in refused.body["message"]
