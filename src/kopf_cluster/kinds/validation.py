"""
What the API server refuses in objects of built-in kinds: absent fields that are required, unknown values of enums.

The server has such rules in code, kind by kind. Here they are those of the published schemas, for what clients write:
the status is left to the controllers. Numbers are not required even if the schemas say so: an absent one is a zero.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kopf_cluster.kinds.structures import Structure
from kopf_cluster.statuses import FieldError, required, unsupported_value

# The schemas call these required, but the server takes them empty or absent.
_TOLERATED: Final = frozenset({
    ("v1.CSINodeSpec", "drivers"), ("v1.ControllerRevision", "data"), ("v1.EndpointSlice", "endpoints"),
    ("v1.Event", "involvedObject"), ("v1.Event", "metadata"), ("v1.HTTPHeader", "value"),
    ("v1.LimitRangeSpec", "limits"), ("v1.Sysctl", "value"), ("v1.TokenRequestSpec", "audiences"),
})
_REASONS: Final = {
    ("v1.PolicyRule", "verbs"): "verbs must contain at least one value",
}
# Where the server goes on into an absent object and misses what must be inside.
_INSIDE: Final = {"v1.JobTemplateSpec": "spec.template.spec.containers", "v1.PodTemplateSpec": "spec.containers"}

_LEFT_OUT: Final = frozenset({"metadata", "status"})
_REQUIRABLE: Final = frozenset({"object", "array", "string", "int-or-string", "quantity"})


def validate(obj: dict[str, Any], structure: Structure) -> Iterator[FieldError]:
    """Give everything that is wrong with an object that has been pruned already."""
    yield from _validate_fields(obj, structure, "", _LEFT_OUT)
    spec = structure.fields.get("spec")
    if spec is not None and "spec" not in obj and "spec" not in structure.required:
        yield from _validate_fields({}, spec, "spec.")


def _validate_fields(
        value: dict[str, Any], structure: Structure, path: str, left_out: frozenset[str] = frozenset(),
) -> Iterator[FieldError]:
    for name in structure.required:
        if not value.get(name) and name not in left_out:
            yield from _miss(structure, name, value, path)
    fields = structure.fields
    for name, item in value.items():
        kind = type(item)
        if kind is dict or kind is list:
            if name not in left_out:
                yield from _validate_contents(item, fields[name], f"{path}{name}")
        elif kind is str:
            allowed = fields[name].enum
            if allowed and item and item not in allowed:
                yield unsupported_value(f"{path}{name}", item, allowed)


def _validate_contents(value: Any, structure: Structure, path: str) -> Iterator[FieldError]:
    if structure.shape == "object":
        yield from _validate_fields(value, structure, f"{path}.")
    elif structure.items is not None and structure.items.shape in ("object", "array", "map"):
        items = value.items() if structure.shape == "map" else enumerate(value)
        for key, item in items:
            yield from _validate_contents(item, structure.items, f"{path}[{key}]")


def _miss(structure: Structure, name: str, value: dict[str, Any], path: str) -> Iterator[FieldError]:
    known = structure.go_type, name
    missed = structure.fields[name]
    if known in _TOLERATED or missed.shape not in _REQUIRABLE or value.get(name) == 0:
        return
    if inside := _INSIDE.get(missed.go_type):
        yield required(f"{path}{name}.{inside}")
    elif missed.shape != "object" or not missed.required:
        if not (missed.shape == "object" and value.get(name) == {}):
            yield required(f"{path}{name}", _REASONS.get(known, ""))
    elif name not in value:
        yield from _validate_fields({}, missed, f"{path}{name}.")
