"""Helpers for nested dicts, with their former arguments and errors, and diffs of single fields."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from kopf._values import fields
from kopf._values.diffs import Diff, DiffItem, diff
from kopf._values.fields import FieldPath, FieldSpec, parse_field


class _Unset(enum.Enum):
    TOKEN = enum.auto()


def resolve(d: Mapping[str, Any] | None, field: FieldSpec, default: Any = _Unset.TOKEN) -> Any:
    """
    Get the value of a field, or the default if it is not there.

    With no default, raises :class:`KeyError` if it is not there; :class:`TypeError` if it cannot be.
    """
    value: Any = d
    for key in parse_field(field):
        if not isinstance(value, Mapping):
            if default is _Unset.TOKEN:
                raise TypeError(f"There cannot be a field {key!r} in {value!r}, as it is not a dict.")
            return default
        if key not in value and default is not _Unset.TOKEN:
            return default
        value = value[key]
    return value


def ensure(d: MutableMapping[str, Any], field: FieldSpec, value: Any) -> None:
    """Set the value of a field, with all the dicts on the way to it. Raises :class:`ValueError` for an empty path."""
    path = parse_field(field)
    if not path:
        raise ValueError("The root of a dict cannot be replaced: the path is empty.")
    fields.ensure(d, path, value)


def remove(d: MutableMapping[str, Any], field: FieldSpec) -> None:
    """Remove a field if it is there, with all dicts on the way to it that become empty."""
    match parse_field(field):
        case ():
            raise ValueError("The root of a dict cannot be removed: the path is empty.")
        case (key,):
            d.pop(key, None)
        case (key, *rest) if isinstance(child := d.get(key), MutableMapping):
            remove(child, rest)
            if not child:
                del d[key]


def cherrypick(
    src: Mapping[str, Any],
    dst: MutableMapping[str, Any],
    fields: Iterable[FieldSpec] | None,
    picker: Callable[[Any], Any] | None = None,
) -> None:
    """Copy the fields that are there. The picker, if any, changes their values."""
    for field in fields or ():
        value = resolve(src, field, _Unset)
        if value is not _Unset:
            ensure(dst, field, value if picker is None else picker(value))


def reduce(d: Diff, path: FieldSpec) -> Diff:
    """Get the changes inside of the field, with paths relative to it."""
    field = parse_field(path)
    return Diff(item for whole in d for item in _narrow(whole, field))


def _narrow(item: DiffItem, field: FieldPath) -> Diff:
    size = len(item.field)
    if item.field[: len(field)] == field:
        return Diff([item._replace(field=item.field[len(field) :])])
    if item.field != field[:size]:
        return Diff()
    return diff(fields.resolve(item.old, field[size:]), fields.resolve(item.new, field[size:]))
