"""
Redacted texts: short texts of values and errors, without the data of Secrets.

Values can be hostile: huge, deep, with escape sequences of terminals. They are made short here; the code that prints
them to a terminal escapes them.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kopf._handlers import filter_criteria
from kopf._handlers.filter_criteria import ABSENT, PRESENT
from kopf._values import codec
from kopf._values.fields import FieldPath
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from kopf._values.user_functions import FilterError, describe_function

HIDDEN = "(hidden)"
MAX_VALUE = 120
MAX_ERROR = 1000
_SECRET_FIELDS = frozenset({"data", "stringData"})
_COMBINATIONS = frozenset({"not_", "all_", "any_", "none_"})
_MIN_SECRET = 4
"""Shorter values are in any text by chance, in characters."""


def is_secret(resource: Resource) -> bool:
    """Tell if the resource is that of Secrets."""
    return resource.plural == "secrets" and not resource.group


class RedactedTexts:
    """Shows the values of the objects of one resource."""

    def __init__(self, resource: Resource) -> None:
        self.is_secret = is_secret(resource)

    def show(self, value: object, path: FieldPath = ()) -> str:
        """Write a value of the field, or the whole object if there is no path, as JSON."""
        return shorten(_dump(self.hide(value, path)), MAX_VALUE)

    def show_criterion(self, expected: object, path: FieldPath = ()) -> str:
        """Write a criterion of a filter: a value, ``kopf.PRESENT`` or ``kopf.ABSENT``, a callback."""
        if expected is PRESENT or expected is ABSENT:
            return f"kopf.{expected.value}"
        return describe_callback(expected) if callable(expected) else self.show(expected, path)

    def show_error(self, error: BaseException) -> str:
        """Write the error with its class; for Secrets, only the class, as the text can contain anything."""
        name, text = type(error).__name__, str(error)
        if isinstance(error, FilterError) and not self.is_secret:  # the text is complete
            return shorten(text, MAX_ERROR)
        return name if self.is_secret or not text else shorten(f"{name}: {text}", MAX_ERROR)

    def hide(self, value: object, path: FieldPath = ()) -> object:
        """Replace the secret parts of the field, or of the whole object if there is no path."""
        if not self.is_secret or value is None:
            return value
        if path:
            return HIDDEN if path[0] in _SECRET_FIELDS else value
        if isinstance(value, Mapping):
            return {key: HIDDEN if key in _SECRET_FIELDS else item for key, item in value.items()}
        return HIDDEN

    def make_scrubber(self, obj: KubeObject | None) -> Scrubber:
        """Make the scrubber of the values of the object, for texts about it, e.g. of errors."""
        return Scrubber(_list_secrets(obj) if self.is_secret and obj is not None else ())


class Scrubber:
    """Removes the given texts from JSON values."""

    def __init__(self, secrets: Iterator[str] | tuple[()]) -> None:
        texts = sorted({text for text in secrets if len(text) >= _MIN_SECRET}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts))) if texts else None

    def scrub(self, value: Any) -> Any:
        """Copy the JSON value without the texts."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(HIDDEN, value)
        if isinstance(value, Mapping):
            return {key: self.scrub(item) for key, item in value.items()}
        return [self.scrub(item) for item in value] if isinstance(value, list) else value


def _list_secrets(obj: KubeObject) -> Iterator[str]:
    for name in _SECRET_FIELDS:
        try:
            values = obj.get(name)
        except ValueError:
            continue
        for value in values.values() if isinstance(values, Mapping) else ():
            if isinstance(value, str):
                yield value
                yield from _decode(value)


def _decode(value: str) -> Iterator[str]:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield text
    yield from text.splitlines()


def describe_callback(fn: Callable[..., Any]) -> str:
    """Name the callback, with its place; combined callbacks are named by their parts."""
    name, _, _ = getattr(fn, "__qualname__", "").partition(".")
    if getattr(fn, "__module__", None) != filter_criteria.__name__ or name not in _COMBINATIONS:
        return describe_function(fn)
    parts = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    fns = [item for part in parts for item in ([part] if callable(part) else part)]
    return f"kopf.{name}({', '.join(map(describe_callback, fns))})"


def _dump(value: object) -> str:
    try:
        return codec.dumps(value)
    except (ValueError, TypeError, RecursionError):  # users can compare with anything
        try:
            return repr(value)
        except Exception:
            return f"<{type(value).__name__}>"


def shorten(text: str, limit: int) -> str:
    """Cut a text that is longer than the limit, in characters."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def show_path(path: FieldPath) -> str:
    """Write the path of a field with dots."""
    return ".".join(path) or "(the whole object)"


def show_time(time: datetime.datetime | None) -> str | None:
    """Write the time in ISO 8601, with milliseconds."""
    return None if time is None else time.isoformat(timespec="milliseconds")


def is_before(one: str | None, another: str | None) -> bool:
    """Compare two times in ISO 8601; ``None`` means at once."""
    if one is None or another is None:
        return one is None and another is not None
    return datetime.datetime.fromisoformat(one) < datetime.datetime.fromisoformat(another)
