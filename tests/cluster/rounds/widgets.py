"""
A custom resource for the rounds of the client libraries: with a schema, defaults, a status, and a scale.
"""

from __future__ import annotations

from typing import Any

GROUP, VERSION, PLURAL, KIND = "rounds.example.com", "v1", "widgets", "Widget"
API_VERSION = f"{GROUP}/{VERSION}"
PATH = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"

_SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "color": {"type": "string", "enum": ["red", "green", "blue"]},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "widget", "kind": KIND},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}},
            }
        ],
    },
}


def make_widget(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def make_config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def make_deployment(name: str, *containers: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": container, "image": f"{container}:1"} for container in containers]},
            },
        },
    }


FREE_PATH = f"/apis/{API_VERSION}/namespaces/default/things"
FREE_DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _STATUS}}},
            }
        ],
    },
}
"""A resource with anything in its spec."""


def make_thing(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Thing", "metadata": {"name": name}, "spec": spec}
