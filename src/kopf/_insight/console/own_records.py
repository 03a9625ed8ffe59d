"""Our own records in patches, in words: how far the handlers have come, rather than the JSON of it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._insight.explaining.progress_explaining import is_record
from kopf._insight.explaining.wording import tell_duration
from kopf._values import codec

MAX_RECORD = 2000
"""What is longer, is not decoded."""

_BEGINNING = '{"started":'
_LAST_HANDLED = "last-handled-configuration"


def could_be_record(value: object) -> bool:
    """Tell by the first characters if it is a serialised record, maybe cut."""
    return type(value) is str and value.startswith(_BEGINNING)


def word_record(path: Sequence[str], old: Any, new: Any, at: int) -> str | None:
    """
    Say what is written there at that time (in milliseconds); ``None`` if it is not ours.

    Whoever has written the same to the same place, is taken for us, so nothing is believed but numbers.
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
        outcome = "succeeded" if record.get("success") is True else "failed for good"
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
