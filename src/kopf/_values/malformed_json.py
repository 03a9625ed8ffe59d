"""
Documents that cannot be decoded: this module cuts out their upper levels, which then can be decoded.

All JSON libraries of Python are recursive, even when they skip a value, and stop at the first mistake. So, this module
looks at the brackets alone, in one pass, without recursion. It is only for documents that are nested too deeply or are
malformed. An attacker can make many of these, so it processes whole runs of brackets: one by one, it would take ten
times longer, and all other work would have to wait.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

# All quantifiers are possessive, as backtracking would find nothing.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_PLAIN = rb'[^\[\]{}"]*+'
_PLAIN_STRING = rb'"[^"\\\[\]{}]*+"'
# Opening brackets with anything but brackets in between, or closing brackets with nothing in between.
_RUN = rb"((?:[\[{]" + _PLAIN + rb"(?:" + _PLAIN_STRING + _PLAIN + rb")*+)++|[\]}]++)"
_find_run = re.compile(rb"(?:[^\[\]{}\"]++|" + _STRING + rb")*+" + _RUN, re.DOTALL).match
_find_openings = re.compile(rb"[\[{]").finditer
# It also finds strings without values: otherwise, it would try each quote in them.
_VALUE = rb"(?:\[(\d{1,9})\]|(" + _STRING + rb"|[^,{}]*+))"
_find_members = re.compile(rb"(" + _STRING + rb")(?:\s*+:\s*+" + _VALUE + rb")?+", re.DOTALL).finditer


def is_deeper(data: bytes, depth: int) -> bool:
    """Tell if the document has more levels than that. The document itself has the depth 1."""
    return data.count(b"[") + data.count(b"{") > depth and next(_find_inner(data, depth), None) is not None


def prune(data: bytes, depth: int) -> bytes:
    """Replace everything below this depth with nulls. The document itself has the depth 1."""
    parts: list[bytes] = []
    position = 0
    for start, end in _find_inner(data, depth):
        parts += [data[position:start], b"null"]
        position = end
    return b"".join([*parts, data[position:]])


def split(data: bytes, depth: int) -> tuple[bytes, list[bytes]]:
    """
    Take out everything below this depth, and leave ``[N]`` instead: the position in the list of the taken parts.

    Nothing else can look like this, as all other lists of this depth are taken out, too.
    """
    parts: list[bytes] = []
    inner: list[bytes] = []
    position = 0
    for start, end in _find_inner(data, depth):
        parts += [data[position:start], b"[%d]" % len(inner)]
        inner.append(data[start:end])
        position = end
    return b"".join([*parts, data[position:]]), inner


def restore(part: bytes, inner: list[bytes]) -> bytes:
    """Return the taken part if this is its position, as :func:`split` leaves it; otherwise, the same bytes."""
    return inner[int(part[1:-1])] if part.startswith(b"[") else part


def split_members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split an object into the serialised names and values of its members, whatever the values are."""
    shallow, inner = split(data, 1)
    for member in _find_members(shallow):
        name, position, value = member.groups()
        if value is not None:
            yield name, value
        elif position is not None and int(position) < len(inner):  # otherwise, the brackets are unbalanced
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
    if level > depth:  # a bracket is never closed, so it is not JSON; the decoder of the rest will notice
        yield start, len(data)
