"""
The pruning of objects of built-in kinds: only known fields of the right types remain.

The server decodes objects into typed structures, which have no place for unknown fields and nulls, nor for empty values
where they are the same as absent ones. It refuses values of wrong types, and keeps quantities and timestamps in their
canonical forms. The original is never modified; the result shares all unchanged parts with it.
"""

from __future__ import annotations

import base64
import datetime
import functools
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kopf_cluster import codec, quantities
from kopf_cluster.json_fields import MAX_NOTES, show_path
from kopf_cluster.kinds.structures import Shape, Structure

_INTEGER_LIMITS: Final = {"int32": 2**31, "int64": 2**63, "": 2**63}
_ZEROES: Final = {"string": "", "boolean": False, "integer": 0, "number": 0, "quantity": "0", "int-or-string": 0}
_DROPPED: Final = object()

# The path of a value: names of fields are texts, indices are numbers, and keys of maps are tuples.
_Path: TypeAlias = list[str | int | tuple[str]]


class MistypedError(ValueError):
    """A value of a wrong type; the message is that of the API server."""


def prune(value: Any, structure: Structure) -> tuple[Any, list[str]]:
    """Return the pruned value, and the paths of the unknown fields in the order of their appearance.

    The paths look as in the server's warnings, e.g. ``spec.containers[0].color``. A value with nothing to prune is
    returned itself. Raise `MistypedError` on the first value of a wrong type.
    """
    pruner = _Pruner()
    return pruner.visit(value, structure), pruner.unknown


class _Pruner:
    __slots__ = ("_path", "unknown")

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._path: _Path = []

    def visit(self, value: Any, structure: Structure) -> Any:
        """Return the pruned value, which is not null."""
        return _VISITS[structure.shape](self, value, structure)

    def _object(self, value: Any, structure: Structure) -> Any:
        if type(value) is not dict:
            raise self._mistyped(value, structure)
        fields, omitted, path, visits = structure.fields, structure.omitted, self._path, _VISITS  # faster; a hot loop
        changes: dict[str, Any] | None = None
        for name, item in value.items():
            field = fields.get(name)
            if field is not None:
                if field.exact is type(item):
                    kept = item
                elif item is None:
                    kept = _DROPPED
                else:
                    path.append(name)
                    kept = visits[field.shape](self, item, field)
                    path.pop()
                if not kept and name in omitted:
                    kept = _DROPPED
                if kept is item:
                    continue
            else:
                if len(self.unknown) < MAX_NOTES:
                    self.unknown.append(show_path([*path, name]))
                kept = _DROPPED
            changes = changes or {}
            changes[name] = kept
        if changes is None:
            return value
        return {name: kept for name, item in value.items() if (kept := changes.get(name, item)) is not _DROPPED}

    def _array(self, value: Any, structure: Structure) -> Any:
        if type(value) is not list:
            raise self._mistyped(value, structure)
        items = _need_items(structure)
        changed: list[Any] | None = None
        for index, item in enumerate(value):
            if items.exact is type(item):
                continue
            self._path.append(index)
            kept = _zero(items) if item is None else self.visit(item, items)
            self._path.pop()
            if kept is not item:
                changed = changed or list(value)
                changed[index] = kept
        return value if changed is None else changed

    def _map(self, value: Any, structure: Structure) -> Any:
        if type(value) is not dict:
            raise self._mistyped(value, structure)
        items = _need_items(structure)
        changes: dict[str, Any] = {}
        for key, item in value.items():
            if items.exact is type(item):
                continue
            self._path.append((key,))
            kept = _zero(items) if item is None else self.visit(item, items)
            self._path.pop()
            if kept is not item:
                changes[key] = kept
        return {**value, **changes} if changes else value

    def _anything(self, value: Any, structure: Structure) -> Any:
        """Keep the whole value, except that schemas of custom resources are pruned."""
        if structure.items is None:
            return value
        if type(value) is not dict:
            raise self._mistyped(value, structure)
        return self.visit(value, structure.items)

    def _integer(self, value: Any, structure: Structure) -> Any:
        limit = _INTEGER_LIMITS[structure.format]
        if type(value) is int and -limit <= value < limit:
            return value
        raise self._mistyped(value, structure)

    def _scalar(self, value: Any, structure: Structure) -> Any:
        shape, kind = structure.shape, type(value)
        try:
            if shape == "string" and kind is str:
                return _formatted(value, structure)
            elif (shape == "boolean" and kind is bool) or (shape == "number" and kind in (int, float)):
                return value
            elif shape == "quantity":
                return _quantity(value)
            elif shape == "int-or-string":
                return _int_or_string(value)
        except ValueError as error:
            raise MistypedError(str(error)) from None
        raise self._mistyped(value, structure)

    def _mistyped(self, value: Any, structure: Structure) -> MistypedError:
        place = ".".join(name for name in self._path if isinstance(name, str))
        shown = codec.type_name(value)
        if shown == "number" and structure.shape == "integer":  # it could be one that fits
            shown += f" {codec.encode(value).decode()}"
        where = f"the field {place}" if place else "a value"
        return MistypedError(f"json: cannot unmarshal {shown} into {where} of type {structure.go_type}")


_VISITS: Final[dict[Shape, Callable[[_Pruner, Any, Structure], Any]]] = {
    "object": _Pruner._object,
    "array": _Pruner._array,
    "map": _Pruner._map,
    "any": _Pruner._anything,
    "integer": _Pruner._integer,
    "string": _Pruner._scalar,
    "boolean": _Pruner._scalar,
    "number": _Pruner._scalar,
    "quantity": _Pruner._scalar,
    "int-or-string": _Pruner._scalar,
}


def _need_items(structure: Structure) -> Structure:
    if structure.items is None:
        raise TypeError(f"a structure of the type {structure.go_type} has no items")
    return structure.items


def _zero(structure: Structure) -> Any:
    """Return the value in Go for a null in an array or a map."""
    return {} if structure.shape == "object" else _ZEROES.get(structure.shape)


def _formatted(value: str, structure: Structure) -> str:
    if structure.format == "date-time":
        kept = canonical(value, micro=structure.go_type.endswith("MicroTime"))
        return value if kept == value else kept
    if structure.format == "byte":
        _check_base64(value)
    return value


def _quantity(value: Any) -> Any:
    if type(value) not in (str, int, float):
        raise ValueError(quantities.RULE)
    kept = quantities.canonical(value if isinstance(value, str) else codec.encode(value).decode())
    return value if kept == value else kept


def _int_or_string(value: Any) -> Any:
    limit = _INTEGER_LIMITS["int32"]
    if type(value) is str or (type(value) is int and -limit <= value < limit):
        return value
    raise ValueError(f"json: cannot unmarshal {codec.type_name(value)} into a value of type int32")


def _check_base64(value: str) -> None:
    try:
        base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
    except ValueError:
        raise ValueError("illegal base64 data") from None


# Timestamps: RFC 3339, in UTC, with the precision of a second or a microsecond.

_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_FORMS: Final = {
    micro: re.compile(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d{fraction}(Z|[+-]\d\d:\d\d)", re.ASCII)
    for micro, fraction in ((False, r"([.,]\d+)?"), (True, r"\.\d{6}"))
}


@functools.lru_cache(maxsize=4096)
def canonical(text: str, *, micro: bool) -> str:
    """Return the timestamp in UTC, or raise `ValueError`."""
    if _FORMS[micro].fullmatch(text) is None:
        raise ValueError(f'parsing time "{text}": it is not of RFC 3339{", to a microsecond" if micro else ""}')
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError as error:
        raise ValueError(f'parsing time "{text}": {error}') from None
    if not micro and _SECONDS.fullmatch(text):
        return text
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
