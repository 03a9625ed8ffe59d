"""
What the operators under comparison tell of themselves: each call of a handler, each line of the log.

It is imported by the operators of both frameworks, so it knows nothing of either. One line of JSON for one thing that
has happened; a line is written at once, so that nothing is lost when the operator is killed.
"""

from __future__ import annotations

import datetime
import enum
import json
import logging
import os
import sys
from collections.abc import Collection, Mapping
from typing import Any

JOURNAL = -1
"""The file descriptor; the host opens it."""


def see(kwargs: Mapping[str, Any], *, tag: object = None) -> None:
    """Tell that a handler is called with these kwargs; what it is called is known from its code."""
    frame = sys._getframe(1)
    name = frame.f_code.co_qualname if tag is None else str(tag)
    _write({"is": "call", "fn": name, "kwargs": {key: _simplify(key, value) for key, value in kwargs.items()}})


def note(text: object) -> None:
    """Tell anything else."""
    _write({"is": "note", "text": str(text)})


def count(key: str) -> int:
    """How many times it was called with the key in this process: 1, 2, 3, ..."""
    _COUNTS[key] = _COUNTS.get(key, 0) + 1
    return _COUNTS[key]


_COUNTS: dict[str, int] = {}

# Not data: what they are able to do is seen in what becomes of the objects.
_TOOLS = {"logger", "patch", "settings", "resource", "stopped", "sslpeer", "headers"}


def _simplify(key: str, value: Any) -> Any:
    return f"<{key}>" if key in _TOOLS else plain(value)


def plain(value: Any) -> Any:
    """Make it JSON, whichever classes the framework has for it."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.datetime | datetime.timedelta):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, Collection):
        return [plain(item) for item in value]
    return "<object>"


class LogWitness(logging.Handler):
    """Tells what is logged about the objects and about the activities."""

    def emit(self, record: logging.LogRecord) -> None:
        ref = getattr(record, "k8s_ref", None) or {}
        error = record.exc_info[1] if record.exc_info else None
        _write(
            {
                "is": "log",
                "logger": record.name.split(".")[1],
                "level": record.levelname,
                "message": record.getMessage(),
                "kind": ref.get("kind"),
                "namespace": ref.get("namespace"),
                "name": ref.get("name"),
                "error": None if error is None else f"{type(error).__name__}: {error}",
            }
        )


def begin(path: str) -> None:
    """Tell everything to that file from now on."""
    global JOURNAL
    JOURNAL = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for name in ("kopf.objects", "kopf.activities"):
        logging.getLogger(name).addHandler(LogWitness(logging.INFO))


def _write(line: Mapping[str, Any]) -> None:
    os.write(JOURNAL, json.dumps(line).encode() + b"\n")
