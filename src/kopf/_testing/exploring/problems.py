"""
Problems: what is wrong with a run by itself, whatever the objects have become: tracebacks, endless retries, failures.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter

from kopf._testing.exploring.normalizing import normalize_text
from kopf._virtual_time.journal import HandlerCall, Journal, SimulatedLogs

_BACKGROUND = frozenset({"timer", "daemon"})
"""Which handlers may be called for ever."""
_FOLLOWING = frozenset({"event", "index"})
"""Which handlers are called for every change, those too that are made in the background."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that must not be. Those with the same key are the same problem, met in other runs."""

    key: str
    text: str
    error: Exception | None = dataclasses.field(default=None, compare=False)
    """The raised error, if that is the problem."""
    is_endless: bool = False
    """Whether it would never settle."""


def describe_failure(what: str, error: Exception) -> Problem:
    """Describe an error that was raised in the run."""
    first = next(iter(str(error).splitlines()), "")
    return Problem(what, f"{what}: {type(error).__name__}: {first}".removesuffix(": "), error)


def find_tracebacks(logs: SimulatedLogs, *, is_harmed: bool) -> list[Problem]:
    """
    Find the errors with tracebacks in the logs.

    :param is_harmed: whether requests of the operator were refused or broken. Then, errors of clients are natural,
        and only mistakes in the code are problems: the built-in exceptions of Python, except for network errors.
    """
    found: dict[str, Problem] = {}
    for line in logs:
        error = line.error
        if line.level < logging.ERROR or error is None or (is_harmed and not _is_mistake(error)):
            continue
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        key = f"traceback {normalize_text(text)}"
        found.setdefault(key, Problem(key, f"there is a traceback in the logs: {text} ({line.message.strip()})"))
    return list(found.values())


def find_endless_calls(journal: Journal, since: float) -> list[Problem]:
    """Find the handlers that are called again and again since that time, though nobody wants anything."""
    entries = [entry for entry in journal if isinstance(entry, HandlerCall) and entry.time >= since]
    has_background = any(entry.reason in _BACKGROUND for entry in entries)
    natural = _BACKGROUND | _FOLLOWING if has_background else _BACKGROUND
    calls: Counter[str] = Counter()
    errors: dict[str, str] = {}
    for entry in entries:
        if entry.outcome == "retried" or entry.reason not in natural:
            calls[entry.id] += 1
            errors[entry.id] = entry.error or errors.get(entry.id, "")
    return [
        Problem(
            f"endless {id}",
            f"handler {id!r} never ends: called {count} times in the last {journal.now - since:g} seconds"
            + (f", {errors[id]}" if errors[id] else ""),
            is_endless=True,
        )
        for id, count in calls.items()
        if count > 1
    ]


def _is_mistake(error: BaseException) -> bool:
    return type(error).__module__ == "builtins" and not isinstance(error, OSError)
