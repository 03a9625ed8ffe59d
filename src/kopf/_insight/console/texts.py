"""
Texts: values, patches, and diffs, in a bounded time and size, as objects can be large and hostile.

Only the names of the stanzas are shown of Secrets. The progress of handlers is shown in words, not as JSON.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._insight.explaining.handler_verdicts import is_record
from kopf._insight.explaining.wording import tell_duration
from kopf._values import codec
from kopf._values.fields import parse_pointer

MAX_RECORD = 2000
"""Longer records are not decoded, in characters."""

_BEGINNING = '{"started":'
_LAST_HANDLED = "last-handled-configuration"


def could_be_record(value: object) -> bool:
    """Tell by the first characters if it is a serialised record, maybe cut."""
    return type(value) is str and value.startswith(_BEGINNING)


def word_record(path: Sequence[str], old: Any, new: Any, at: int) -> str | None:
    """
    Say in words what is written there at that time (in milliseconds); return ``None`` if it is not our record.

    Others can write a record to the same place, so only its numbers are shown.
    """
    if path[:1] not in (("metadata",), ("status",)) or len(path) < 3:
        return None
    prefix, _, name = path[-1].rpartition("/")
    if name == _LAST_HANDLED and (prefix or path[0] == "status"):
        return "the last handled state"
    if path[:2] == ("metadata", "annotations"):
        is_ours = bool(prefix) and (could_be_record(old if new is None else new))
    else:
        name, is_ours = path[-1], path[-2] == "progress" and is_record(old if new is None else new)
    if not is_ours:
        return None
    state = "" if new is None else _describe(_decode(new), at)
    return f"progress of `{name}`{state and ': '}{state}"


def _decode(value: Any) -> Any:
    try:
        return codec.decode(value) if isinstance(value, str) else value
    except ValueError:  # it is cut, as it is large
        return None


def _describe(record: Any, at: int) -> str:
    if not is_record(record):
        return ""
    count = record.get("retries")
    attempts = count if type(count) is int else 0
    if record.get("success") is True or record.get("failure") is True:
        outcome = "succeeded" if record.get("success") is True else "failed permanently"
        return f"{outcome} after {attempts} attempt{'' if attempts == 1 else 's'}"
    if not attempts:
        return "to be called"
    return f"attempt {attempts}, again {_tell_delay(record.get('delayed'), at)}"


def _tell_delay(delayed: Any, at: int) -> str:
    try:
        seconds = datetime.datetime.fromisoformat(delayed).timestamp() - at / 1000
    except (ValueError, TypeError, OverflowError):
        return "at once"
    return f"in {tell_duration(seconds)}" if at and seconds > 0 else "later" if not at else "at once"


MAX_TEXT = 500
"""The limit of a message, in characters."""
MAX_LINES = 40
"""How many fields of one patch are shown."""
MAX_VALUE = 160
"""The limit of a shown value, in characters."""
_MAX_PATH = 200
_MAX_ITEMS = 12
_MAX_DEPTH = 5
WITHHELD = "(withheld: about a Secret)"
_HIDDEN = "•••"


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """Cut a text that is longer than the limit, in characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_error(error: BaseException) -> str:
    """Show the error with its class: the text alone is often meaningless."""
    try:
        text = str(error)
    except Exception:  # it is the users' class
        text = "(it cannot be shown)"
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def show_value(value: Any) -> str:
    """Show the beginning of a JSON value in one line."""
    parts: list[str] = []
    room = MAX_VALUE
    for part in _iterate(value, _MAX_DEPTH):
        parts.append(part)
        room -= len(part)
        if room < 0:
            break
    return cut("".join(parts), MAX_VALUE)


def _iterate(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield f'"{_escape(value[:MAX_VALUE])}"'
    elif value is None or value is True or value is False:
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, Mapping):
        yield from _join("{", "}", (_show_item(key, item, depth) for key, item in value.items()), depth)
    elif isinstance(value, list | tuple):
        yield from _join("[", "]", (_iterate(item, depth - 1) for item in value), depth)
    elif isinstance(value, int) and value.bit_length() > 1000:
        yield "(a huge number)"
    else:
        yield cut(repr(value), MAX_VALUE)


def _escape(text: str) -> str:
    """Escape the line breaks."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if not text.isprintable() else text


def _join(opening: str, closing: str, items: Iterable[Iterable[str]], depth: int) -> Iterator[str]:
    yield opening
    for number, item in enumerate(items):
        if depth <= 0 or number == _MAX_ITEMS:
            yield "…"
            break
        if number:
            yield ", "
        yield from item
    yield closing


def _show_item(key: Any, value: Any, depth: int) -> Iterator[str]:
    yield f"{cut(str(key), MAX_VALUE)}: "
    yield from _iterate(value, depth - 1)


Details = Sequence[str] | dict[str, Any]
"""The details of an entry: lines, or their source: a ``diff``, or the ``changes`` of a patch with ``before``."""


def show_details(details: dict[str, Any], at: int) -> list[str]:
    """Make the lines of an entry of that time. This takes longer than all else that is done for an entry."""
    if "diff" in details:
        return show_diff(details["diff"], secret=False)
    return show_patch(details["changes"], details["before"], secret=False, at=at)


def show_diff(diff: Iterable[Sequence[Any]], *, secret: bool) -> list[str]:
    """Show the changes, field by field."""
    lines = (_show_change(tuple(field), old, new, secret) for _, field, old, new in diff)
    return _limit(lines)


def show_patch(changes: Any, before: Mapping[str, Any] | None, *, secret: bool, at: int = 0) -> list[str]:
    """
    Show a merge-patch or a JSON-patch; with the values ``before`` it, if they are known.

    ``at`` is the time of the patch, in milliseconds since the epoch; 0 if it is unknown.
    """
    if isinstance(changes, Mapping):
        return _limit(_show_merge(changes, before, secret, at))
    if isinstance(changes, list):
        return _limit(_show_operation(item, secret, at) for item in changes if isinstance(item, Mapping))
    return []


def _show_merge(changes: Mapping[str, Any], before: Any, secret: bool, at: int) -> Iterator[str]:
    pending: list[tuple[tuple[str, ...], Any, Any]] = [((), changes, before)]
    while pending:
        path, value, old = pending.pop()
        is_stanza = isinstance(value, Mapping) and value and not is_record(value)
        if is_stanza and len(path) < _MAX_DEPTH and not (secret and path):
            items = itertools.islice(value.items(), MAX_LINES + 1)
            known = old if isinstance(old, Mapping) else {}
            pending += [((*path, str(key)), item, known.get(key)) for key, item in reversed([*items])]
        elif path != ("metadata", "resourceVersion"):  # a condition of the patch, not a change
            yield _show_change(path, old, value, secret, at)


def _show_operation(item: Mapping[str, Any], secret: bool, at: int) -> str:
    path = parse_pointer(str(item.get("path", "")))
    if item.get("op") == "remove":
        return _show_change(path, ..., None, secret)
    if item.get("op") == "test":
        expected = "as expected" if secret else show_value(item.get("value"))
        return f"{_show_path(path[:1] if secret else path)} is {expected}"
    return _show_change(path, None, item.get("value"), secret, at)


def _show_change(path: tuple[str, ...], old: Any, new: Any, secret: bool, at: int = 0) -> str:
    """Show a change in one line that begins with ``+`` (added), ``-`` (removed), or ``~`` (changed)."""
    sign = "-" if new is None else "+" if old is None else "~"
    if secret:
        return f"{sign} {_show_path(path[:1])}: {_HIDDEN}"
    if (words := word_record(path, old, new, at)) is not None:
        return f"{sign} {cut(words)}"
    name = _show_path(path)
    if new is None:
        return f"- {name}" if old is None or old is ... else f"- {name}: {show_value(old)}"
    if old is None:
        return f"+ {name}: {show_value(new)}"
    return f"~ {name}: {show_value(old)} → {show_value(new)}"


def _show_path(path: tuple[str, ...]) -> str:
    parts = [part if part.isidentifier() else f"[{part}]" for part in map(str, path[:8])]
    return cut(".".join(cut(part, 80) for part in parts).replace(".[", "["), _MAX_PATH) or "(everything)"


def _limit(lines: Iterable[str]) -> list[str]:
    taken = [*itertools.islice(lines, MAX_LINES + 1)]
    return [*dict.fromkeys(taken[:MAX_LINES]), *(["… and more"] if len(taken) > MAX_LINES else [])]
