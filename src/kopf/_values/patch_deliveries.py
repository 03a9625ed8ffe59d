"""
Deliveries: the effects of a patch's transformation functions that the object already has.

A function can be not idempotent, e.g. append an item to a list. If its patch was applied, but the response was lost, or
if only the first of two requests was applied, Kopf must not call the function for these parts of the object again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kopf._values.fields import FieldPath, parse_pointer, resolve

STATUS: Final = "status"
REST: Final = "rest"
NOTHING: Final = frozenset[str]()
EVERYTHING: Final = frozenset({STATUS, REST})
"""All parts of an object that separate requests patch."""

Items = Sequence[Mapping[str, Any]]
"""The operations of a JSON patch."""


class Deliveries:
    """The known and unknown effects of the requests of one patch."""

    __slots__ = ("_lost", "done")

    def __init__(self) -> None:
        self.done = NOTHING
        """The parts of the object that have the effects of the functions."""
        self._lost: tuple[tuple[str, frozenset[str], Items], ...] = ()

    def note_done(self, parts: frozenset[str]) -> None:
        """Note that these parts were patched."""
        self.done |= parts
        self._lost = ()

    def note_lost(self, version: str, parts: frozenset[str], items: Items) -> None:
        """Note that a response was lost: these parts of this version may have been patched."""
        self._lost += ((version, parts, items),)

    def settle(self, body: Mapping[str, Any], version: str) -> None:
        """Resolve lost responses by another version of the object: if it has no effects, there never will be any."""
        for base, parts, items in self._lost:
            if base != version and is_done(items, body):
                self.done |= parts
        self._lost = tuple(lost for lost in self._lost if lost[0] == version and not lost[1] <= self.done)


def is_done(items: Items, body: Mapping[str, Any]) -> bool:
    """
    Tell if the object has been patched with these operations, and possibly changed by others after that.

    One of the patched annotations is enough: progress records contain the times of attempts. Otherwise, the object must
    have all values.
    """
    values = [value for item in items for value in _list_values(item)]
    known = [resolve(body, path) == value for path, value in values if path[:2] == ("metadata", "annotations")]
    return any(known) or all(resolve(body, path) == value for path, value in values)


def _list_values(item: Mapping[str, Any]) -> Iterator[tuple[FieldPath, Any]]:
    """List the fields and the values that the operation of a JSON patch sets; ``None`` if it removes them."""
    path = parse_pointer(item["path"])
    pending: list[tuple[FieldPath, Any]] = [(path, item.get("value"))]
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping) and value:
            pending += [((*path, key), child) for key, child in value.items()]
        else:
            yield path, value


def choose(merged: Mapping[str, Any], changed: Mapping[str, Any], done: Collection[str]) -> dict[str, Any]:
    """Combine an object: of the ``merged`` one for the parts that are done, of the ``changed`` one for the others."""
    sources = {True: merged, False: changed}
    return {
        key: value
        for part, is_status in ((STATUS, True), (REST, False))
        for key, value in sources[part in done].items()
        if (key == "status") is is_status
    }
