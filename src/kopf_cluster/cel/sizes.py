"""
How large values can be at most by their schemas, and how small: what the costs of rules are estimated from.

The numbers are those of kube-apiserver: what no limit is told of, is as large as fits in a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kopf_cluster.cel.values import Schema, fields_of

MAX_REQUEST: Final = 3 * 1024 * 1024

_LEAST: Final = {"boolean": 4, "integer": 1, "number": 1, "string": 2, "array": 2}
_LEAST_TEXTS: Final = {"duration": 3, "date": 12, "date-time": 21}
_MOST_TEXTS: Final = {"duration": 32, "date": 12, "date-time": 32}
_BYTES: Final = 4  # of one character, at most


def most_elements(schema: Schema) -> int:
    """Give how many characters, items, or entries there can be; zero for what has none."""
    kind = "string" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    values = schema.get("additionalProperties")
    if kind == "string":
        return _most_characters(schema)
    if kind == "array":
        fitting = (MAX_REQUEST - 2) // (least_bytes(schema.get("items") or {}) + 1)
        return int(schema.get("maxItems", fitting))
    if kind == "object" and isinstance(values, Mapping):
        return int(schema.get("maxProperties", (MAX_REQUEST - 2) // (least_bytes(values) + 6)))
    return 0


def _most_characters(schema: Schema) -> int:
    form, longest = schema.get("format") or "", schema.get("maxLength")
    if form in _MOST_TEXTS:
        return _MOST_TEXTS[form]
    if longest is not None:
        return int(longest) * (1 if form == "byte" else _BYTES)
    if schema.get("enum"):
        return max(len(str(value)) for value in schema["enum"])
    return MAX_REQUEST - 2


def least_bytes(schema: Schema, *, root: bool = False) -> int:
    """Give how many bytes the smallest value takes in JSON."""
    kind = schema.get("type") or ""
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    if kind == "string":
        return _LEAST_TEXTS.get(schema.get("format") or "", _LEAST["string"])
    if kind != "object" or isinstance(schema.get("additionalProperties"), Mapping):
        return _LEAST.get(kind, 2)
    fields = fields_of(schema, root=root)
    needed = [name for name in schema.get("required") or () if name in fields and "default" not in fields[name]]
    return 2 + sum(len(name) + least_bytes(fields[name]) + 4 for name in needed)
