"""
What the API server keeps of an object of a built-in kind: only known fields, only of the right types.

The server decodes objects into typed structures, so what has no place there is lost: unknown fields and nulls;
and empty values where they are no different from absent ones.
Values of wrong types are refused, with the words of Go's JSON decoder. Quantities and timestamps are kept in their
canonical forms. Nothing is modified: what has to change is copied, all the rest is shared with the original.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import functools
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from kopf_cluster.json_fields import MAX_NOTES
from kopf_cluster.kinds import quantities
from kopf_cluster.kinds.structures import Shape, Structure

_INTEGER_LIMITS: Final = {"int32": 2**31, "int64": 2**63, "": 2**63}
_ZEROES: Final = {"string": "", "boolean": False, "integer": 0, "number": 0, "quantity": "0", "int-or-string": 0}
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=\r\n]")
_DROPPED: Final = object()

# Where we are: names of fields are texts, indices are numbers, and keys of maps are tuples.
_Path: TypeAlias = list[str | int | tuple[str]]


class MistypedError(ValueError):
    """A value of a wrong type; the text is what follows ``Pod in version "v1" cannot be handled as a Pod: ``."""

    def __init__(self, text: str, conversion: str) -> None:
        super().__init__(text)
        self.conversion = conversion
        """The same as told when it is not a text that is decoded, but a patched document that is converted."""


def prune(value: Any, structure: Structure) -> tuple[Any, list[str]]:
    """Give what is kept of the value, and the paths of the unknown fields, in the order of their appearance.

    The paths are as in the warnings of the server, e.g. ``spec.containers[0].color``. If all is well,
    the very same value is given back. Raise `MistypedError` on the first value of a wrong type.
    """
    pruner = _Pruner()
    return pruner.visit(value, structure, structure), pruner.unknown


class _Pruner:
    __slots__ = ("_path", "unknown")

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._path: _Path = []

    def visit(self, value: Any, structure: Structure, owner: Structure) -> Any:
        """Give what is kept of a value that is not null; the owner is the innermost structure with fields around."""
        return _VISITS[structure.shape](self, value, structure, owner)

    def _object(self, value: Any, structure: Structure, owner: Structure) -> Any:
        if type(value) is not dict:
            raise self._mistyped(value, structure, owner)
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
                    kept = visits[field.shape](self, item, field, structure)
                    path.pop()
                if not kept and name in omitted:
                    kept = _DROPPED
                if kept is item:
                    continue
            else:
                if len(self.unknown) < MAX_NOTES:
                    self.unknown.append(_show([*path, name]))
                kept = _DROPPED
            changes = changes or {}
            changes[name] = kept
        if changes is None:
            return value
        return {name: kept for name, item in value.items() if (kept := changes.get(name, item)) is not _DROPPED}

    def _array(self, value: Any, structure: Structure, owner: Structure) -> Any:
        if type(value) is not list:
            raise self._mistyped(value, structure, owner)
        items = _need_items(structure)
        changed: list[Any] | None = None
        for index, item in enumerate(value):
            if items.exact is type(item):
                continue
            self._path.append(index)
            kept = _zero(items) if item is None else self.visit(item, items, owner)
            self._path.pop()
            if kept is not item:
                changed = changed or list(value)
                changed[index] = kept
        return value if changed is None else changed

    def _map(self, value: Any, structure: Structure, owner: Structure) -> Any:
        if type(value) is not dict:
            raise self._mistyped(value, structure, owner)
        items = _need_items(structure)
        changes: dict[str, Any] = {}
        for key, item in value.items():
            if items.exact is type(item):
                continue
            self._path.append((key,))
            kept = _zero(items) if item is None else self.visit(item, items, owner)
            self._path.pop()
            if kept is not item:
                changes[key] = kept
        return {**value, **changes} if changes else value

    def _anything(self, value: Any, structure: Structure, owner: Structure) -> Any:
        return value

    def _integer(self, value: Any, structure: Structure, owner: Structure) -> Any:
        limit = _INTEGER_LIMITS[structure.format]
        if type(value) is int and -limit <= value < limit:
            return value
        raise self._mistyped(value, structure, owner)

    def _scalar(self, value: Any, structure: Structure, owner: Structure) -> Any:
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
            raise MistypedError(str(error), str(error)) from None
        raise self._mistyped(value, structure, owner)

    def _mistyped(self, value: Any, structure: Structure, owner: Structure) -> MistypedError:
        names = [name for name in self._path if isinstance(name, str)]
        place = f"Go struct field {owner.go_type.rpartition('.')[2]}.{'.'.join(names)}" if names else "Go value"
        shown = _go_value(value, fractional=structure.shape == "integer")
        return MistypedError(
            f"json: cannot unmarshal {shown} into {place} of type {structure.go_type}",
            _explain_conversion(value, structure),
        )


_VISITS: Final[dict[Shape, Callable[[_Pruner, Any, Structure, Structure], Any]]] = {
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
    """Give what Go makes of a null where there must be something: in arrays and maps."""
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
    kept = quantities.canonical(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return value if kept == value else kept


def _int_or_string(value: Any) -> Any:
    limit = _INTEGER_LIMITS["int32"]
    if type(value) is str or (type(value) is int and -limit <= value < limit):
        return value
    raise ValueError(f"json: cannot unmarshal {_go_value(value, fractional=True)} into Go value of type int32")


def _check_base64(value: str) -> None:
    wrong = _NOT_BASE64.search(value)
    if wrong is None:
        try:
            base64.b64decode(value, validate=not re.search(r"[\r\n]", value))
        except binascii.Error:
            raise ValueError(f"illegal base64 data at input byte {len(value) // 4 * 4}") from None
    else:
        raise ValueError(f"illegal base64 data at input byte {wrong.start()}")


def _go_value(value: Any, *, fractional: bool) -> str:
    """Name the type of a value as Go's decoder does; numbers that do not fit are shown."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return f"number {msgspec.json.encode(value).decode()}" if fractional else "number"
        case list():
            return "array"
        case None:
            return "null"
    return "object"


_CONTAINERS: Final = {"object": "restore struct from:", "map": "restore map from", "array": "restore slice from"}
_KINDS: Final[dict[type, str]] = {
    dict: "map",
    list: "slice",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


def _explain_conversion(value: Any, structure: Structure) -> str:
    """Tell what the converter of documents says: numbers could be texts or other numbers in Go, but not in JSON."""
    kind, target = _KINDS[type(value)], structure.go_type
    if structure.shape in _CONTAINERS:
        return f"cannot {_CONTAINERS[structure.shape]} {kind}"
    if (kind, structure.shape) in (("int64", "string"), ("int64", "integer"), ("float64", "integer")):
        return f"cannot convert {kind} to {target}"
    return f"unrecognized type: {target}"


def _show(path: _Path) -> str:
    """Show a path as the server does in its warnings: ``spec.containers[0].color``."""
    shown = "".join(
        f"[{name}]" if isinstance(name, int) else f".{name[0] if isinstance(name, tuple) else name}" for name in path
    )
    return shown.removeprefix(".")


# Timestamps as the API server reads and keeps them: RFC 3339, in UTC, to a second or to a microsecond.
#
# The wording of the errors is that of Go, in which the server is written.

_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DATE: Final = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_ZONE: Final = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_LAYOUTS: Final = {
    False: (*_DATE, ("", r"(?:[.,]\d+)?"), _ZONE),
    True: (*_DATE, (".000000", r"\.\d{6}"), _ZONE),
}


@functools.lru_cache(maxsize=4096)
def canonical(text: str, *, micro: bool) -> str:
    """Give the timestamp in UTC, or raise `ValueError` with the message of the API server."""
    _check_layout(text, micro)
    if not micro and _SECONDS.fullmatch(text):
        _parse(text)
        return text
    moment = _parse(text).astimezone(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _check_layout(text: str, micro: bool) -> None:
    layout = _LAYOUTS[micro]
    rest = text
    for element, pattern in layout:
        matched = re.match(pattern, rest, re.ASCII)
        if matched is None:
            raise ValueError(f'{_parsing(text, micro)}: cannot parse "{rest}" as "{element}"')
        rest = rest[matched.end() :]
    if rest:
        raise ValueError(f'{_parsing(text, micro)}: extra text: "{rest}"')


def _parse(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError as error:
        what = str(error).partition(" ")[0]
        raise ValueError(f'parsing time "{text}": {what} out of range') from None


def _parsing(text: str, micro: bool) -> str:
    layout = "".join(element for element, _ in _LAYOUTS[micro])
    return f'parsing time "{text}" as "{layout}"'
