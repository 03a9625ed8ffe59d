"""
Patterns of namespaces, by which an operator is restricted to some of them.

A pattern is an exact name; or a glob with ``*`` and ``?``; or several globs with commas between them, each of which
can be negated by ``!``; or a regular expression for the whole name.
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

    Of several globs, the first one is decisive: what does not match it, does not match at all; if it is negated, all
    that it does not exclude is included. Of the others, the last one that fits the name decides if it is included.
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
    """Choose those that are names, and not patterns: nothing has to be known of the cluster to serve them."""
    return frozenset(item for item in patterns if isinstance(item, str) and not set(item) & set("*?!,"))


def check_patterns(patterns: Iterable[NamespacePattern]) -> Collection[NamespacePattern]:
    """Remove the duplicates. Raises :class:`ValueError` if any of the patterns is empty, or a part of it is."""
    unique = dict.fromkeys(patterns)
    for pattern in unique:
        if isinstance(pattern, str) and not all(glob.removeprefix("!") for glob in _split(pattern)):
            raise ValueError(f"The pattern of namespaces is empty, or a part of it between the commas is: {pattern!r}.")
    return list(unique)


def encode_pattern(pattern: NamespacePattern) -> str | list[Any]:
    """Get it as JSON."""
    return pattern if isinstance(pattern, str) else [pattern.pattern, pattern.flags]


def decode_pattern(value: str | list[Any]) -> NamespacePattern:
    """Get it from JSON. Raises :class:`ValueError` or :class:`TypeError` if it is not what was encoded."""
    return value if isinstance(value, str) else re.compile(*value)


def _split(pattern: str) -> list[str]:
    return [glob.strip() for glob in pattern.split(",")]
