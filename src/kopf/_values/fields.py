"""Field paths: names of places inside an object (``spec.field`` or ``('spec', 'field')``), for reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

FieldPath = tuple[str, ...]
FieldSpec = None | str | FieldPath | list[str]


def parse_field(field: FieldSpec) -> FieldPath:
    """
    Normalise a field specification to a tuple of keys; no field is an empty tuple.

    Raises :class:`ValueError` for anything that is not a dotted string or a sequence of strings.
    """
    match field:
        case None:
            return ()
        case str():
            return tuple(field.split(".")) if field else ()
        case tuple() | list() if all(isinstance(key, str) for key in field):
            return tuple(field)
    raise ValueError(f"A field must be a dotted string or a sequence of strings, got {field!r}.")


def parse_pointer(pointer: str) -> FieldPath:
    """Parse a JSON pointer (RFC 6901)."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:])


def make_pointer(path: FieldPath) -> str:
    """Form a JSON pointer (RFC 6901)."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


def resolve(source: Any, path: Iterable[str], default: Any = None) -> Any:
    """Get the value at the path, or the default if it is absent or ``None``, which means the same in Kubernetes."""
    value = source
    for key in path:
        if type(value) is not dict and (value is None or not isinstance(value, Mapping)):  # the former are much faster
            return default
        value = value.get(key)
    return default if value is None else value


def ensure(target: MutableMapping[str, Any], path: FieldPath, value: Any) -> None:
    """Set the value at the path, and create the absent parents."""
    for key in path[:-1]:
        child = target.get(key)
        if not isinstance(child, MutableMapping):
            child = target[key] = {}
        target = child
    target[path[-1]] = value


def without(source: Mapping[str, Any], path: FieldPath) -> dict[str, Any]:
    """Copy the mapping (only the levels on the path) without the field, and without parents that become empty."""
    key, rest = path[0], path[1:]
    result = dict(source)
    child = source.get(key)
    if rest and isinstance(child, Mapping):
        remaining = without(child, rest)
        if remaining or not child:
            result[key] = remaining
        else:
            del result[key]
    elif not rest:
        result.pop(key, None)
    return result
