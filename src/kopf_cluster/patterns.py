"""
Regular expressions from clients: of the schemas and the rules of custom resources.

RE2 matches them, as in the API server, in linear time for any pattern. Python would block the whole server with some of
them; it is used where RE2 is not installed, which is not safe for untrusted users.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

try:
    import re2
except ImportError:
    re2 = None

MAX_LENGTH: Final = 10_000
"""Longer patterns are refused."""


class Match(Protocol):
    """A match."""

    def __getitem__(self, group: int, /) -> str: ...


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str, /) -> Match | None: ...
    def finditer(self, text: str, /) -> Iterator[Match]: ...


class PatternError(ValueError):
    """It is not a regular expression."""


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Compile the pattern or raise `PatternError`."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"the pattern is longer than {MAX_LENGTH} characters")
    if re2 is None:
        return _compile_in_python(pattern)
    try:
        compiled: Pattern = re2.compile(pattern, options=_make_options())
    except re2.error as error:
        text = error.args[0] if error.args else error
        raise PatternError(text.decode(errors="replace") if isinstance(text, bytes) else str(text)) from None
    return compiled


def _compile_in_python(pattern: str) -> Pattern:
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1] + r"\Z"
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise PatternError(str(error)) from None


def _make_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options
