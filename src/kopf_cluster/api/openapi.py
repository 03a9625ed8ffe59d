"""
OpenAPI documents: the schemas of all kinds, and the parameters of their writes.

``kubectl explain`` shows the schemas, ``kubectl apply`` takes from them how to merge lists, and the parameters tell
it that the server validates fields itself. In v3, there is a document for each group and version; in v2, one for all.
They are made on demand, and kept until their kinds change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from kopf_cluster import codec
from kopf_cluster.kinds import documents, resources, structures
from kopf_cluster.kinds.documents import Dialect
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.protobuf.values import SCALARS
from kopf_cluster.protobuf.wire import write_field, write_key
from kopf_cluster.requests import Answer, Request

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # no "@", which is illegal in answers
_INFO: Final = {"title": "Kubernetes", "version": f"v{resources.kubernetes_version()}"}
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_OBJECT_META, _LIST_META = _META + "ObjectMeta", _META + "ListMeta"
_COMMON: Final = tuple(_META + name for name in ("DeleteOptions", "Status", "ObjectMeta", "ListMeta"))
_WRITE_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_VERSION_TEXT: Final = (
    "APIVersion defines the versioned schema of this representation of an object. It tells "
    "which fields there are and what they mean."
)
_KIND_TEXT: Final = "Kind is the name of what this object represents, in CamelCase. It cannot be changed."


class OpenAPI:
    """Answers requests about schemas."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[list[Kind], bytes]] = {}

    def answer(self, request: Request) -> Answer | None:
        """Answer if the path is one of OpenAPI."""
        match request.path:
            case ("openapi", "v2"):
                return self._version_2(request)
            case ("openapi", "v3"):
                return Answer(200, codec.encode({"paths": self._index()}))
            case ("openapi", "v3", "api", version) if self._registry.kinds("", version):
                return self._version_3("", version)
            case ("openapi", "v3", "apis", group, version) if group and self._registry.kinds(group, version):
                return self._version_3(group, version)
        return None

    def _version_2(self, request: Request) -> Answer:
        kinds = [
            kind
            for group in self._registry.groups()
            for version in self._registry.versions(group)
            for kind in self._registry.kinds(group, version)
        ]
        if "proto-openapi.spec.v2" in request.accept:
            made = self._remember("v2.pb", kinds, lambda: encode_document(_swagger(kinds)))
            return Answer(200, made, _PROTOBUF)
        return Answer(200, self._remember("v2.json", kinds, lambda: codec.encode(_swagger(kinds))))

    def _version_3(self, group: str, version: str) -> Answer:
        kinds = self._registry.kinds(group, version)
        return Answer(200, self._remember(f"{group}/{version}", kinds, lambda: codec.encode(_openapi(kinds))))

    def _remember(self, name: str, kinds: list[Kind], make: Callable[[], bytes]) -> bytes:
        known = self._made.get(name)
        if known is None or list(map(id, known[0])) != list(map(id, kinds)):
            known = self._made[name] = (kinds, make())
        return known[1]

    def _index(self) -> Obj:
        """List the documents with hashes of their kinds, without making the documents."""
        paths: Obj = {}
        for group in self._registry.groups():
            for version in self._registry.versions(group):
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                identities = [_identify(kind) for kind in self._registry.kinds(group, version)]
                digest = hashlib.sha256(codec.encode(identities)).hexdigest().upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return paths


def _identify(kind: Kind) -> Any:
    return [kind.definition, kind.plural, kind.schema.raw if kind.schema is not None else _INFO["version"]]


def _openapi(kinds: Iterable[Kind]) -> Obj:
    schemas = _schemas(kinds, "v3")
    paths: Obj = {}
    for kind in kinds:
        paths.update(_paths(kind))
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _swagger(kinds: Iterable[Kind]) -> Obj:
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": _schemas(kinds, "v2")}


def _paths(kind: Kind) -> Obj:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    reference = {"$ref": f"#/components/schemas/{_schema_name(kind)}"}
    content = {"application/json": {"schema": reference}}
    answers = {"200": {"description": "OK", "content": content}}

    def operation(action: str, *parameters: Obj) -> Obj:
        written = {"parameters": list(parameters), "requestBody": {"content": content}} if parameters else {}
        return {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, **written, "responses": answers}

    base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = {"get": operation("list")} if "list" in kind.verbs else {}
    single = {"get": operation("get")} if "get" in kind.verbs else {}
    for verb, method, target in (("create", "post", collection), ("update", "put", single), ("patch", "patch", single)):
        if verb in kind.verbs:
            target[method] = operation(method, *_WRITE_PARAMETERS)
    paths = {f"{base}{scope}/{kind.plural}": collection, f"{base}{scope}/{kind.plural}/{{name}}": single}
    return {path: operations for path, operations in paths.items() if operations}


def _schemas(kinds: Iterable[Kind], dialect: Dialect) -> Obj:
    names = list(_COMMON)
    customs: Obj = {}
    for kind in kinds:
        if kind.schema is not None:
            customs.update(_describe_custom(kind, kind.schema.raw, dialect))
        else:
            names += [name for name in (kind.definition, f"{kind.definition}List") if structures.is_defined(name)]
    return {**documents.describe(names, dialect), **customs}


def _schema_name(kind: Kind) -> str:
    return kind.definition or f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


_HEAD: Final = {
    "apiVersion": {"type": "string", "description": _VERSION_TEXT},
    "kind": {"type": "string", "description": _KIND_TEXT},
}
_METADATA_TEXT: Final = "Standard object's metadata."


def _describe_custom(kind: Kind, raw: Any, dialect: Dialect) -> Obj:
    """Return the schema of a custom kind with the common fields of all objects, and the schema of its lists."""
    name = _schema_name(kind)
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    items = {"type": "array", "items": documents.refer(name, dialect)}
    list_kind = kind.list_kind or f"{kind.kind}List"
    listed = {
        "type": "object",
        "required": ["items"],
        "description": f"{list_kind} is a list of {kind.kind}",
        "properties": {**_HEAD, "items": items, "metadata": documents.refer(_LIST_META, dialect)},
        "x-kubernetes-group-version-kind": [{**gvk, "kind": list_kind}],
    }
    described = {**_describe_root(raw, dialect), "x-kubernetes-group-version-kind": [gvk]}
    return {name: described, f"{name.rpartition('.')[0]}.{list_kind}": listed}


def _describe_root(raw: Any, dialect: Dialect) -> Obj:
    if dialect == "v2" and raw.get("x-kubernetes-preserve-unknown-fields"):
        return {"type": "object"}  # kubectl takes it that there are no other properties if there are any
    own = _describe(raw, dialect)
    return {**own, "type": "object", "properties": {**(own.get("properties") or {}), **_head_of_object(dialect)}}


def _head_of_object(dialect: Dialect) -> Obj:
    return {**_HEAD, "metadata": {"description": _METADATA_TEXT, **documents.refer(_OBJECT_META, dialect)}}


# The keywords of schemas in OpenAPI v2; v3 has added more.
_SIMPLE: Final = frozenset(
    {
        "type",
        "format",
        "title",
        "description",
        "default",
        "required",
        "enum",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "additionalProperties",
    }
)


def _describe(raw: Any, dialect: Dialect) -> Obj:
    """Return a published schema: with the common fields of embedded objects, and simplified for v2."""
    made: Obj = dict(raw) if dialect == "v3" else _simplify(raw)
    if made.get("properties"):
        made["properties"] = {name: _describe(sub, dialect) for name, sub in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _describe(made[key], dialect)
    is_told = dialect == "v3" or not raw.get("x-kubernetes-preserve-unknown-fields")
    if raw.get("x-kubernetes-embedded-resource") and is_told:
        made["properties"] = {**(made.get("properties") or {}), **_head_of_object(dialect)}
        made["required"] = [*dict.fromkeys([*(made.get("required") or ()), "kind", "apiVersion"])]
    return made


def _simplify(raw: Any) -> Obj:
    """Omit keywords that v2 does not know. Where anything or null is allowed, omit the fields and items, too, as
    kubectl would refuse all others; and omit the type of lists without items.
    """
    made = {
        key: value
        for key, value in raw.items()
        if key in _SIMPLE or (key.startswith("x-kubernetes-") and key != "x-kubernetes-validations")
    }
    if not raw.get("nullable") and not raw.get("x-kubernetes-preserve-unknown-fields"):
        made |= {key: raw[key] for key in ("properties", "items") if key in raw}
    if raw.get("nullable") or (made.get("type") == "array" and "items" not in made):
        made.pop("type", None)
    if made.get("required"):
        fields = raw.get("properties") or {}
        made["required"] = [name for name in made["required"] if not (fields.get(name) or {}).get("nullable")]
    return made


# OpenAPI v2 documents in their binary form, which clients in Go ask for: a JSON document → protobuf.
#
# The messages follow ``openapi.v2`` of gnostic (``OpenAPIv2.proto``). Only what documents of the local cluster
# contain is encoded: definitions with their fields and extensions.

# The numbers and the types of the fields in ``openapi.v2.Schema``.
_SIMPLE_FIELDS: Final = {
    "$ref": (1, "string"),
    "format": (2, "string"),
    "title": (3, "string"),
    "description": (4, "string"),
    "multipleOf": (6, "double"),
    "maximum": (7, "double"),
    "exclusiveMaximum": (8, "bool"),
    "minimum": (9, "double"),
    "exclusiveMinimum": (10, "bool"),
    "maxLength": (11, "int64"),
    "minLength": (12, "int64"),
    "pattern": (13, "string"),
    "maxItems": (14, "int64"),
    "minItems": (15, "int64"),
    "uniqueItems": (16, "bool"),
    "maxProperties": (17, "int64"),
    "minProperties": (18, "int64"),
}
_DEFAULT, _REQUIRED, _ENUM, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSIONS = 5, 19, 20, 21, 22, 23, 25, 31


def encode_document(document: Obj) -> bytes:
    """Encode a document of the version 2.0."""
    info = b"".join(_text(number, document["info"][name]) for name, number in (("title", 1), ("version", 2)))
    return b"".join(
        [
            _text(1, document["swagger"]),
            write_field(2, info),
            write_field(8, b""),
            write_field(9, _named(1, document["definitions"])),
        ]
    )


def _schema(schema: Obj) -> bytes:
    parts = [_simple(number, type_, schema[name]) for name, (number, type_) in _SIMPLE_FIELDS.items() if name in schema]
    if "default" in schema:
        parts.append(write_field(_DEFAULT, _anything(schema["default"])))
    parts += [_text(_REQUIRED, name) for name in schema.get("required") or ()]
    parts += [write_field(_ENUM, _anything(value)) for value in schema.get("enum") or ()]
    if "additionalProperties" in schema:
        values = schema["additionalProperties"]
        parts.append(
            write_field(
                _ADDITIONAL, _simple(2, "bool", values) if isinstance(values, bool) else write_field(1, _schema(values))
            )
        )
    if "type" in schema:
        parts.append(write_field(_TYPE, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(write_field(_ITEMS, write_field(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(write_field(_PROPERTIES, _named(1, schema["properties"])))
    parts += [
        write_field(_EXTENSIONS, _text(1, name) + write_field(2, _anything(value)))
        for name, value in schema.items()
        if name.startswith("x-")
    ]
    return b"".join(parts)


def _named(number: int, schemas: Obj) -> bytes:
    items: Iterable[bytes] = (_text(1, name) + write_field(2, _schema(schema)) for name, schema in schemas.items())
    return b"".join(write_field(number, item) for item in items)


def _simple(number: int, type_: str, value: Any) -> bytes:
    return write_key(number, SCALARS[type_].wire) + SCALARS[type_].encode(value)


def _anything(value: Any) -> bytes:
    """Encode a value of any type as YAML, of which JSON is a subset."""
    return write_field(2, codec.encode(value))


def _text(number: int, value: str) -> bytes:
    return write_field(number, value.encode())
