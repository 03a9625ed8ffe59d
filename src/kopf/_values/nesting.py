"""
Documents that cannot be decoded: their upper levels are cut out, so that these can be decoded.

Every JSON library of Python is recursive, even where it only skips a value, and stops at the first mistake. So this
looks at the brackets and commas alone, in one pass, with no recursion. It is much slower than to decode, and is only
for those documents that are nested too deeply or are malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Strings, as they can contain brackets; possessive, as there is nothing to be gained by going back.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_find_tokens = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL).finditer
_find_separators = re.compile(_STRING + rb"|[\[\]{},:]", re.DOTALL).finditer


def prune(data: bytes, depth: int) -> bytes:
    """Replace with nulls all that is nested deeper than that; the document itself is of the depth 1."""
    parts: list[bytes] = []
    position = 0
    for start, end in _find_inner(data, depth):
        parts += [data[position:start], b"null"]
        position = end
    return b"".join([*parts, data[position:]])


def split(data: bytes, depth: int) -> tuple[bytes, list[bytes]]:
    """
    Take out all that is nested deeper than that, leaving ``[N]`` there: the position in the list of what is taken out.

    Nothing else can look so there, as all other lists of that depth are taken out.
    """
    parts: list[bytes] = []
    inner: list[bytes] = []
    position = 0
    for start, end in _find_inner(data, depth):
        parts += [data[position:start], b"[%d]" % len(inner)]
        inner.append(data[start:end])
        position = end
    return b"".join([*parts, data[position:]]), inner


def split_members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the serialised names and values of the members of an object, whatever the values are."""
    level = start = 0
    name = b""
    for token in _find_separators(data):
        match token[0]:
            case b"{" | b"[":
                level += 1
                if level == 1:
                    start = token.end()
            case b":" if level == 1 and not name:
                name, start = data[start : token.start()], token.end()
            case b"," | b"}" | b"]" as end:
                if level == 1 and name:
                    yield name, data[start : token.start()]
                    name = b""
                if end != b",":
                    level -= 1
                elif level == 1:
                    start = token.end()


def _find_inner(data: bytes, depth: int) -> Iterator[tuple[int, int]]:
    level = start = 0
    for token in _find_tokens(data):
        match token[0]:
            case b"{" | b"[":
                level += 1
                if level == depth + 1:
                    start = token.start()
            case b"}" | b"]":
                level -= 1
                if level == depth:
                    yield start, token.end()
    if level > depth:  # it is never closed, so it is not JSON; without it, this can be found out
        yield start, len(data)
