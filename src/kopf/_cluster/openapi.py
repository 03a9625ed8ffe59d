"""
OpenAPI documents as far as clients need them: which parameters a patch takes, and the schemas of custom kinds.

``kubectl`` looks there whether the server validates the fields itself (it does), and for ``kubectl explain``.
The documents for built-in kinds carry no schemas.
"""
from __future__ import annotations

import hashlib
from typing import Any, Final

from . import codec
from .kinds.kind import Kind, Obj
from .kinds.registry import Registry
from .requests import Answer, Request

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_EMPTY_PROTOBUF: Final = b"\n\x032.0"  # the only field that an empty document must have: swagger = "2.0"
_INFO: Final = {"title": "Kubernetes", "version": "v1.36.0"}
_WRITE_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


class OpenAPI:
    """Answers to the questions about schemas."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def answer(self, request: Request) -> Answer | None:
        """Answer if the path is one of OpenAPI."""
        match request.path:
            case ("openapi", "v2"):
                return self._version_2(request)
            case ("openapi", "v3"):
                return Answer(200, codec.encode({"paths": self._index()}))
            case ("openapi", "v3", "api", version) if self._registry.kinds("", version):
                return Answer(200, codec.encode(self._document("", version)))
            case ("openapi", "v3", "apis", group, version) if self._registry.kinds(group, version):
                return Answer(200, codec.encode(self._document(group, version)))
        return None

    def _version_2(self, request: Request) -> Answer:
        if "proto-openapi.spec.v2" in request.accept:
            return Answer(200, _EMPTY_PROTOBUF, _PROTOBUF)
        return Answer(200, codec.encode({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}))

    def _index(self) -> Obj:
        paths: Obj = {}
        for group in self._registry.groups():
            for version in self._registry.versions(group):
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                digest = hashlib.sha256(codec.encode(self._document(group, version))).hexdigest()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.upper()}"}
        return paths

    def _document(self, group: str, version: str) -> Obj:
        paths: Obj = {}
        schemas: Obj = {}
        for kind in self._registry.kinds(group, version):
            gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
            base = f"/apis/{group}/{version}" if group else f"/api/{version}"
            scope = "/namespaces/{namespace}" if kind.namespaced else ""
            reference = {"$ref": f"#/components/schemas/{_schema_name(kind)}"}
            answers = {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}}
            paths[f"{base}{scope}/{kind.plural}/{{name}}"] = {
                "get": {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": gvk, "responses": answers},
                "patch": {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk,
                          "parameters": _WRITE_PARAMETERS, "responses": answers},
            }
            paths[f"{base}{scope}/{kind.plural}"] = {
                "post": {"x-kubernetes-action": "post", "x-kubernetes-group-version-kind": gvk,
                         "parameters": _WRITE_PARAMETERS, "responses": answers},
            }
            schemas[_schema_name(kind)] = {**_schema(kind), "x-kubernetes-group-version-kind": [gvk]}
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _schema_name(kind: Kind) -> str:
    reversed_group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{reversed_group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Obj:
    raw: Any = kind.schema.raw if kind.schema is not None else {"type": "object"}
    described = {
        "apiVersion": {"type": "string", "description": "The versioned schema of this representation of an object."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {"type": "object", "description": "Standard object's metadata."},
    }
    return {**raw, "properties": {**described, **(raw.get("properties") or {})}}
