"""
Walks of a schema: which states an object goes through, and what it must come out as.

Its fields become what they can be at the edges of what their schema permits (OpenAPI v3 of custom resources).

Refusals by other rules, e.g. by patterns, are not foreseen here: they are noticed when the API refuses the object.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kopf._virtual_time.journal import shorten

ABSENT: Final = object()
"""The field is not there."""
_LONG = 1000
"""How long texts are at most, in characters, even if longer ones are permitted."""
_LARGE = 2**31 - 1

Manifest = Mapping[str, Any]


class Change(NamedTuple):
    """A value for a field of the object."""

    path: tuple[str, ...]
    value: Any

    def __str__(self) -> str:
        shown = "absent" if self.value is ABSENT else repr(self.value)
        return f"{'.'.join(self.path)}={shorten(shown, 30)}"

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Make the manifest with this value."""
        changed: dict[str, Any] = copy.deepcopy(dict(manifest))
        place = changed
        for key in self.path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        if self.value is ABSENT:
            place.pop(self.path[-1], None)
        else:
            place[self.path[-1]] = self.value
        return changed


def list_changes(schema: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[Change]:
    """List all values at the edges for all fields of the object, except for its current values."""
    fields = {
        key: value
        for key, value in schema.get("properties", {}).items()
        if key not in ("apiVersion", "kind", "metadata", "status")
    }
    return [
        change
        for name, field in fields.items()
        for change in _walk((name,), field, is_required=name in schema.get("required", ()))
        if change.apply(manifest) != manifest
    ]


def _walk(path: tuple[str, ...], schema: Mapping[str, Any], *, is_required: bool) -> Iterator[Change]:
    properties = schema.get("properties", {})
    for value in list_values(schema):
        yield Change(path, value)
    for name, field in properties.items():
        yield from _walk((*path, name), field, is_required=name in schema.get("required", ()))
    if schema.get("nullable"):
        yield Change(path, None)
    if not is_required and len(path) > 1:
        yield Change(path, ABSENT)


def list_values(schema: Mapping[str, Any]) -> Sequence[Any]:
    """List the values at the edges of the schema; nothing if it has fields, or says nothing."""
    if "enum" in schema:
        return list(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return [0, "50%"]
    match schema.get("type"):
        case "boolean":
            return [False, True]
        case "integer" | "number":
            return _list_numbers(schema)
        case "string":
            return ["x" * length for length in _list_lengths(schema)]
        case "array":
            return [[]]
        case "object" if not schema.get("properties"):
            return [{}]
        case _:
            return []


def _list_numbers(schema: Mapping[str, Any]) -> list[float]:
    least, most = schema.get("minimum"), schema.get("maximum")
    low = [0, -1] if least is None else [least + bool(schema.get("exclusiveMinimum"))]
    high = [_LARGE] if most is None else [most - bool(schema.get("exclusiveMaximum"))]
    return [value for value in [*low, *high] if (most is None or value <= most) and (least is None or value >= least)]


def _list_lengths(schema: Mapping[str, Any]) -> list[int]:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return [least] if most is None else sorted({least, min(most, max(least, _LONG))})


class Walk(NamedTuple):
    """The states of the object, one by one, and its expected final state."""

    name: str
    kind: str
    states: Sequence[Manifest]
    expected: Manifest
    ending: str = ""


def make_walks(base: Manifest, changes: Sequence[Change]) -> Iterator[Walk]:
    """Make all walks: each change alone, there and back, then all pairs."""
    for change in changes:
        changed = change.apply(base)
        yield Walk(f"created with {change}", "creation", [changed], changed)
        yield Walk(str(change), "change", [base, changed], changed)
        yield Walk(f"{change} and back", "change and back", [base, changed, base], base)
        yield Walk(f"{change}, then deletion", "deletion", [base, changed], changed, "deletion")
    for one, other in itertools.combinations(changes, 2):
        if one.path != other.path:
            changed = other.apply(one.apply(base))
            yield Walk(f"{one}, {other}", "pair", [base, changed], changed)
            yield Walk(f"{one}, {other} and back", "pair and back", [base, changed, base], base)
