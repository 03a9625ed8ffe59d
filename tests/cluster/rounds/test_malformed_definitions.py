"""
Definitions of custom resources with something missing, strange, or out of place: refused, or served somehow.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.cluster.conftest import CRDS, MERGE
from tests.cluster.rounds.malformed import check, distort
from tests.cluster.rounds.wire import Wire
from tests.hostile.inputs import COUNT

RICH_GROUP = "rich.example.com"


def make_rich_definition(plural: str) -> dict[str, Any]:
    """Make a definition with a bit of everything that can be there."""
    spec = {
        "type": "object",
        "required": ["count"],
        "properties": {
            "count": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1, "format": "int32"},
            "list": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["key"],
                "maxItems": 9,
                "items": {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}}},
            },
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 5},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True},
            "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "embedded": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "text": {"type": "string", "pattern": "^x", "enum": ["x", "xy"], "minLength": 1, "maxLength": 5},
        },
        "x-kubernetes-validations": [{"rule": "self.count < 9", "message": "too many", "reason": "FieldValueInvalid"}],
    }
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
    version = {
        "served": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.count",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [{"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 0}],
        "selectableFields": [{"jsonPath": ".spec.text"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    definition: dict[str, Any] = json.loads(
        json.dumps(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{RICH_GROUP}"},
                "spec": {
                    "group": RICH_GROUP,
                    "scope": "Namespaced",
                    "conversion": {"strategy": "None"},
                    "names": {
                        "plural": plural,
                        "kind": plural.title(),
                        "shortNames": [plural[:-1]],
                        "categories": ["all"],
                    },
                    "versions": [
                        {"name": "v1", "storage": True, **version},
                        {"name": "v2", "storage": False, **version},
                    ],
                },
            }
        )
    )
    return definition


def test_distorted_definitions(wire: Wire) -> None:
    """If one is accepted, its objects are served somehow; what it makes wrong, it makes wrong only for itself."""
    rnd = random.Random(0)
    for number in range(max(150, COUNT)):
        plural = f"kind{number}s"
        definition = make_rich_definition(plural)
        for _ in range(rnd.choice((1, 1, 2, 3))):
            definition["spec"] = distort(definition["spec"], rnd)
        answer = wire.send("POST", CRDS, definition)
        check(answer)
        assert answer.status in (201, 400, 422), (definition, answer)
        if answer.status == 201:
            path = f"/apis/{RICH_GROUP}/v1/namespaces/default/{plural}"
            for spec in ({}, {"count": 1, "list": [{"key": "a"}], "map": {"a": 1}, "any": {"a": 1}, "port": "http"}, 5):
                obj = {
                    "apiVersion": f"{RICH_GROUP}/v1",
                    "kind": plural.title(),
                    "metadata": {"name": "x"},
                    "spec": spec,
                }
                check(wire.send("POST", path, obj))
            check(wire.send("PATCH", f"{path}/x", {"spec": {"count": 2}}, MERGE))
            for form in ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"):
                check(wire.request("GET", path, headers={"Accept": form}))
            check(wire.send("GET", f"{path}/x/scale"))
            check(wire.send("GET", f"/openapi/v3/apis/{RICH_GROUP}/v1"))
            assert wire.send("DELETE", f"{CRDS}/{plural}.{RICH_GROUP}").status == 200
