"""
The fields of a JSON text as they are written: their order, and the duplicates.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

MAX_NOTES: Final = 100  # as in kube-apiserver
"""How many notes about the fields of one object are made, and of how many characters in all."""
_MAX_LENGTH: Final = 1024 * 1024

_REPEATED: Final = 'duplicate field "{}"'
_UNKNOWN: Final = 'unknown field "{}"'


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its fields, repeated or not."""


class _RepeatedError(Exception):
    """An object has a field more than once."""


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _RepeatedError
    return fields


_decoder: Final = json.JSONDecoder(object_pairs_hook=_make_object)


def has_repeated(text: bytes) -> bool:
    """Tell if a field is more than once in an object: quickly, as nearly no text has one. Not of what is not JSON."""
    try:
        _decoder.decode(text.decode())
    except _RepeatedError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def find_repeated(text: bytes) -> list[str]:
    """Return which fields are more than once in an object; nothing of a text that is not JSON."""
    if not has_repeated(text):
        return []
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return limit(_REPEATED.format(show_path(path)) for path, repeated in _walk(pairs) if repeated)


def describe_unknown(paths: Iterable[str]) -> list[str]:
    """Return which fields are unknown."""
    return limit(map(_UNKNOWN.format, dict.fromkeys(paths)))


def sort(text: bytes, repeated: Collection[str], unknown: Collection[str]) -> list[str]:
    """Put what is told of the fields in the order of the text, each once, and nothing of what is in unknown fields."""
    notes = dict.fromkeys([*repeated, *unknown])
    names = {note.rstrip('"').replace('"', ".").rpartition(".")[2] for note in notes}  # others need no paths
    ordered: dict[str, None] = {}
    strange = "."  # the latest unknown field
    for path, again in _walk(json.loads(text, object_pairs_hook=_Pairs)):
        if path[-1] in names:
            shown = show_path(path)
            if _UNKNOWN.format(shown) in notes:
                strange = shown
                ordered[_UNKNOWN.format(shown)] = None
            elif again and not shown.startswith((f"{strange}.", f"{strange}[")):
                ordered[_REPEATED.format(shown)] = None
    return list(ordered)


def limit(notes: Iterable[str]) -> list[str]:
    """Return the first notes: a short text with many mistakes in it must not make a long answer."""
    kept: list[str] = []
    length = 0
    for note in notes:
        length += len(note)
        if len(kept) == MAX_NOTES or length > _MAX_LENGTH:
            break
        kept.append(note)
    return kept


def _walk(value: Any) -> Iterator[tuple[list[str | int], bool]]:
    """Yield the path of each field, and whether it was there before; the list is valid until the next one."""
    levels, path = [_enter(value)], list[str | int]()
    while levels:
        step = next(levels[-1], None)
        if step is None:
            levels.pop()
            continue
        name, item, repeated = step
        path[len(levels) - 1 :] = [name]
        if isinstance(name, str):
            yield path, repeated
        if isinstance(item, list):
            levels.append(_enter(item))


def _enter(value: Any) -> Iterator[tuple[str | int, Any, bool]]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            yield name, item, name in seen
            seen.add(name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield index, item, False


def show_path(path: Iterable[str | int | tuple[str]]) -> str:
    """Show a path as the server does in its warnings: ``spec.containers[0].color``; keys of maps can be in tuples."""
    shown = "".join(
        f"[{name}]" if isinstance(name, int) else f".{name[0] if isinstance(name, tuple) else name}" for name in path
    )
    return shown.removeprefix(".")
