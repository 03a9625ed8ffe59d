"""
Patterns of namespaces, which restrict an operator to some namespaces.

A pattern is an exact name; or a glob with ``*`` and ``?``; or several globs with commas between them, each optionally
negated by ``!``; or a regular expression for the whole name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable
from typing import Any

NamespacePattern = str | re.Pattern[str]


def matches(name: str, pattern: NamespacePattern) -> bool:
    """
    Tell if the namespace matches the pattern.

    Of several globs, a name must match the first one, unless that is negated: then all names match at first. After
    that, the last glob that fits the name includes or excludes it.
    """
    if isinstance(pattern, re.Pattern):
        return pattern.fullmatch(name) is not None
    globs = _split(pattern)
    if not globs[0].startswith("!") and not fnmatch.fnmatchcase(name, globs[0]):
        return False
    fitting = [glob for glob in globs if fnmatch.fnmatchcase(name, glob.removeprefix("!"))]
    return not fitting or not fitting[-1].startswith("!")


def matches_any(name: str, patterns: Iterable[NamespacePattern]) -> bool:
    """Tell if the namespace matches any of the patterns."""
    return any(matches(name, pattern) for pattern in patterns)


def get_exact(patterns: Iterable[NamespacePattern]) -> frozenset[str]:
    """Return the exact names, which need no knowledge about the cluster."""
    return frozenset(item for item in patterns if isinstance(item, str) and not set(item) & set("*?!,"))


def check_patterns(patterns: Iterable[NamespacePattern]) -> Collection[NamespacePattern]:
    """Remove duplicates. Raises :class:`ValueError` if a pattern or a part of it is empty."""
    unique = dict.fromkeys(patterns)
    for pattern in unique:
        if isinstance(pattern, str) and not all(glob.removeprefix("!") for glob in _split(pattern)):
            raise ValueError(f"The pattern of namespaces is empty, or a part of it between the commas is: {pattern!r}.")
    return list(unique)


def encode_pattern(pattern: NamespacePattern) -> str | list[Any]:
    """Encode the pattern for JSON."""
    return pattern if isinstance(pattern, str) else [pattern.pattern, pattern.flags]


def decode_pattern(value: str | list[Any]) -> NamespacePattern:
    """Decode the pattern from JSON. Raises :class:`ValueError` or :class:`TypeError` if it is malformed."""
    return value if isinstance(value, str) else re.compile(*value)


def _split(pattern: str) -> list[str]:
    return [glob.strip() for glob in pattern.split(",")]
