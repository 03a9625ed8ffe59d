"""
Documents that cannot be decoded: their upper levels are cut out, so that these can be decoded.

Every JSON library of Python is recursive, even where it only skips a value, and stops at the first mistake. So this
looks at the brackets alone, in one pass, with no recursion. It is only for those documents that are nested too deeply
or are malformed. Whoever makes them can make many of them, so it goes by whole runs of brackets: one by one, it would
take ten times longer, and everything else would have to wait.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

# Possessive everywhere, as there is nothing to be gained by going back.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_PLAIN = rb'[^\[\]{}"]*+'
_PLAIN_STRING = rb'"[^"\\\[\]{}]*+"'
# Opening brackets with anything but brackets in between; closing ones with nothing in between.
_RUN = rb"((?:[\[{]" + _PLAIN + rb"(?:" + _PLAIN_STRING + _PLAIN + rb")*+)++|[\]}]++)"
_find_run = re.compile(rb"(?:[^\[\]{}\"]++|" + _STRING + rb")*+" + _RUN, re.DOTALL).match
_find_openings = re.compile(rb"[\[{]").finditer
# Strings that are not followed by values are found, too: otherwise, each quote in them would be tried.
_VALUE = rb"(?:\[(\d{1,9})\]|(" + _STRING + rb"|[^,{}]*+))"
_find_members = re.compile(rb"(" + _STRING + rb")(?:\s*+:\s*+" + _VALUE + rb")?+", re.DOTALL).finditer


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
    shallow, inner = split(data, 1)
    for member in _find_members(shallow):
        name, position, value = member.groups()
        if value is not None:
            yield name, value
        elif position is not None and int(position) < len(inner):  # otherwise, the brackets are not balanced
            yield name, inner[int(position)]


def _find_inner(data: bytes, depth: int) -> Iterator[tuple[int, int]]:
    level = start = position = 0
    while token := _find_run(data, position):
        position, run = token.end(), token[1]
        if run.startswith((b"[", b"{")):
            before, level = level, level + run.count(b"[") + run.count(b"{")
            if before <= depth < level:
                opening = next(itertools.islice(_find_openings(run), depth - before, None))
                start = token.start(1) + opening.start()
        else:
            before, level = level, level - len(run)
            if level <= depth < before:
                yield start, token.start(1) + before - depth
    if level > depth:  # it is never closed, so it is not JSON; without it, this can be found out
        yield start, len(data)
