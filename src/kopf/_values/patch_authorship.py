"""Authorship: the handlers that made each change of a patch, for messages about changes that fail or are refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from kopf._values.fields import FieldPath
from kopf._values.foreign_values import PROPER, ForeignValue, find_foreign_values

_DEPTH = 3
"""The depth of the patch with known authors: it reaches labels, annotations, and fields of results."""


class Authorship:
    """The authors of one patch, to which several handlers contribute one after another."""

    __slots__ = ("_fns", "_suspects", "_values")

    def __init__(self) -> None:
        self._fns: dict[int, tuple[Callable[[Any], None], str]] = {}  # the functions keep their ids unique
        self._values: dict[FieldPath, tuple[Any, str]] = {}
        self._suspects: set[FieldPath] = set()

    def sign(self, content: Mapping[str, Any], fns: Iterable[Callable[[Any], None]], author: str) -> None:
        """Note the author of all changes that are new since the last call."""
        for fn in fns:
            self._fns.setdefault(id(fn), (fn, author))
        for path, value in _list_values(content, (), _DEPTH):
            known = self._values.get(path)
            if known is None or known[0] is not value:
                self._values[path] = (value, author)
                if type(value) not in PROPER:
                    self._suspects.add(path)

    def find_foreign_values(self) -> list[ForeignValue]:
        """Find the values that JSON has no form for."""
        return [found for path in self._suspects for found in find_foreign_values(self._values[path][0], path)]

    def get_author(self, fn: Callable[[Any], None]) -> str:
        """Get the author of the function; empty if unknown."""
        return self._fns.get(id(fn), (fn, ""))[1]

    def find_authors(self, content: Mapping[str, Any], fields: Collection[FieldPath]) -> list[str]:
        """Get the authors of the fields of the patch; without fields, of the whole patch."""
        authors = [
            author
            for path, (_, author) in self._values.items()
            if path[0] in content and (not fields or any(_overlap(field, path) for field in fields))
        ]
        if not fields or not authors:  # the fields that the functions change are unknown
            authors += [author for _, author in self._fns.values()]
        return [*dict.fromkeys(authors)]


def _list_values(content: Mapping[str, Any], parent: FieldPath, depth: int) -> Iterator[tuple[FieldPath, Any]]:
    for key, value in content.items():
        path = (*parent, key)
        if depth > 1 and value and isinstance(value, dict):
            yield from _list_values(value, path, depth - 1)
        else:
            yield path, value


def _overlap(one: FieldPath, two: FieldPath) -> bool:
    """Tell if one of the fields contains the other one, or is the same."""
    return all(map(str.__eq__, one, two))
