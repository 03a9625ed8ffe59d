"""
OpenAPI v2 documents in their binary form, which clients in Go ask for: a JSON document → protobuf.

The messages are those of ``openapi.v2`` of gnostic (``OpenAPIv2.proto``). Only what documents of the local cluster
have in them is encoded: definitions with their fields and extensions.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from kopf_cluster import codec
from kopf_cluster.protobuf.values import SCALARS
from kopf_cluster.protobuf.wire import write_field, write_key

Obj: TypeAlias = dict[str, Any]

# The numbers and the types of the fields in ``openapi.v2.Schema``.
_SIMPLE: Final = {
    "$ref": (1, "string"), "format": (2, "string"), "title": (3, "string"), "description": (4, "string"),
    "multipleOf": (6, "double"), "maximum": (7, "double"), "exclusiveMaximum": (8, "bool"), "minimum": (9, "double"),
    "exclusiveMinimum": (10, "bool"), "maxLength": (11, "int64"), "minLength": (12, "int64"), "pattern": (13, "string"),
    "maxItems": (14, "int64"), "minItems": (15, "int64"), "uniqueItems": (16, "bool"), "maxProperties": (17, "int64"),
    "minProperties": (18, "int64"),
}
_DEFAULT, _REQUIRED, _ENUM, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSIONS = 5, 19, 20, 21, 22, 23, 25, 31


def encode(document: Obj) -> bytes:
    """Encode a document of the version 2.0."""
    info = b"".join(_text(number, document["info"][name]) for name, number in (("title", 1), ("version", 2)))
    return b"".join([
        _text(1, document["swagger"]), write_field(2, info), write_field(8, b""),
        write_field(9, _named(1, document["definitions"])),
    ])


def _schema(schema: Obj) -> bytes:
    parts = [_simple(number, type_, schema[name]) for name, (number, type_) in _SIMPLE.items() if name in schema]
    if "default" in schema:
        parts.append(write_field(_DEFAULT, _anything(schema["default"])))
    parts += [_text(_REQUIRED, name) for name in schema.get("required") or ()]
    parts += [write_field(_ENUM, _anything(value)) for value in schema.get("enum") or ()]
    if "additionalProperties" in schema:
        values = schema["additionalProperties"]
        parts.append(write_field(_ADDITIONAL, _simple(2, "bool", values) if isinstance(values, bool)
                                 else write_field(1, _schema(values))))
    if "type" in schema:
        parts.append(write_field(_TYPE, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(write_field(_ITEMS, write_field(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(write_field(_PROPERTIES, _named(1, schema["properties"])))
    parts += [write_field(_EXTENSIONS, _text(1, name) + write_field(2, _anything(value)))
              for name, value in schema.items() if name.startswith("x-")]
    return b"".join(parts)


def _named(number: int, schemas: Obj) -> bytes:
    items: Iterable[bytes] = (_text(1, name) + write_field(2, _schema(schema)) for name, schema in schemas.items())
    return b"".join(write_field(number, item) for item in items)


def _simple(number: int, type_: str, value: Any) -> bytes:
    return write_key(number, SCALARS[type_].wire) + SCALARS[type_].encode(value)


def _anything(value: Any) -> bytes:
    """Encode what is of no fixed type: as YAML, of which JSON is a part."""
    return write_field(2, codec.encode(value))


def _text(number: int, value: str) -> bytes:
    return write_field(number, value.encode())
