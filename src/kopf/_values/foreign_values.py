"""
Foreign values: values that JSON has no form for, such as times, sets, bytes, NaN.

The encoder has a form for many, but they are different when read back. So Kopf warns users.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._values.fields import FieldPath, parse_pointer

WARNING = "JSON has no form for some values of %s: %s. Convert them in the handler: Kopf stores texts, lists, or nulls."
"""For the handler and the result of :func:`name_foreign_values`."""

MAX_WARNED = 20_000
"""The number of remembered warnings, by objects and handlers. Remembered warnings are not repeated."""

_MAX_NAMED = 3
_MAX_DEPTH = 1000
"""About the maximal depth of values that can be encoded."""
PROPER = frozenset({str, int, bool, type(None)})
"""The types of values that JSON has a form for, without containers."""
_KEYS = (str, int, float)
"""The types of valid keys. All keys become texts."""


class ForeignValue(NamedTuple):
    """A value that JSON has no form for, and its place."""

    path: FieldPath
    value: Any

    def __str__(self) -> str:
        name = str(self.value) if isinstance(self.value, float) else type(self.value).__name__
        path = ".".join(self.path).replace(".[", "[")
        return f"{path} ({name})"


def find_foreign_values(value: Any, path: FieldPath = ()) -> list[ForeignValue]:
    """Find all foreign values in the value of the field, without recursion: it can be deep, or contain itself."""
    found, pending = [], [(path, value)]
    while pending and len(path) < _MAX_DEPTH:
        path, value = pending.pop()
        if isinstance(value, Mapping):
            found += [ForeignValue((*path, str(key)), key) for key in value if not isinstance(key, _KEYS)]
            items = [((*path, str(key)), item) for key, item in value.items() if type(item) not in PROPER]
            pending += reversed(items)
        elif isinstance(value, list | tuple):
            items = [((*path, f"[{index}]"), item) for index, item in enumerate(value) if type(item) not in PROPER]
            pending += reversed(items)
        elif not _is_proper(value):
            found.append(ForeignValue(path, value))
    return found


def _is_proper(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def find_in_patch(changes: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Iterator[ForeignValue]:
    """Find all foreign values in a merge patch, or in the items of a JSON patch."""
    if isinstance(changes, Mapping):
        yield from find_foreign_values(changes)
        return
    for item in changes:
        yield from find_foreign_values(item.get("value"), parse_pointer(item["path"]))


def name_foreign_values(values: Iterable[ForeignValue]) -> str:
    """Name the values and their places; at most the first three."""
    names = [*map(str, values)]
    more = [f"and {len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return ", ".join([*names[:_MAX_NAMED], *more])
