"""
OpenAPI v2 documents in their binary form, which clients in Go ask for: a JSON document → protobuf.

The messages are those of ``openapi.v2`` of gnostic (``OpenAPIv2.proto``). Only what documents of the local cluster
have in them is encoded: definitions with their fields and extensions.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from .. import codec

Obj: TypeAlias = dict[str, Any]

# The numbers of the fields in ``openapi.v2.Schema``.
_TEXTS: Final = {"$ref": 1, "format": 2, "title": 3, "description": 4}
_REQUIRED, _ENUM, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSIONS = 19, 20, 21, 22, 23, 25, 31


def encode(document: Obj) -> bytes:
    """Encode a document of the version 2.0."""
    info = b"".join(_text(number, document["info"][name]) for name, number in (("title", 1), ("version", 2)))
    return b"".join([
        _text(1, document["swagger"]), _bytes(2, info), _bytes(8, b""),
        _bytes(9, _named(1, document["definitions"])),
    ])


def _schema(schema: Obj) -> bytes:
    parts = [_text(number, schema[name]) for name, number in _TEXTS.items() if name in schema]
    parts += [_text(_REQUIRED, name) for name in schema.get("required") or ()]
    parts += [_bytes(_ENUM, _anything(value)) for value in schema.get("enum") or ()]
    if "additionalProperties" in schema:
        parts.append(_bytes(_ADDITIONAL, _bytes(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_bytes(_TYPE, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_bytes(_ITEMS, _bytes(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(_bytes(_PROPERTIES, _named(1, schema["properties"])))
    parts += [_bytes(_EXTENSIONS, _text(1, name) + _bytes(2, _anything(value)))
              for name, value in schema.items() if name.startswith("x-")]
    return b"".join(parts)


def _named(number: int, schemas: Obj) -> bytes:
    items: Iterable[bytes] = (_text(1, name) + _bytes(2, _schema(schema)) for name, schema in schemas.items())
    return b"".join(_bytes(number, item) for item in items)


def _anything(value: Any) -> bytes:
    """Encode what is of no fixed type: as YAML, of which JSON is a part."""
    return _bytes(2, codec.encode(value))


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
