"""
Deliveries: which effects of the transformation functions of a patch are on the object already.

A function can be anything but idempotent, e.g. it appends an item to a list. If its patch was applied, but the response
was lost, or only the first of two requests was applied, then it must not be called for these parts of the object again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kopf._values.fields import FieldPath, resolve

STATUS: Final = "status"
REST: Final = "rest"
NOTHING: Final = frozenset[str]()
EVERYTHING: Final = frozenset({STATUS, REST})
"""The parts of an object that can be patched separately."""

Items = Sequence[Mapping[str, Any]]
"""The operations of a JSON-patch."""


class Deliveries:
    """What has become of the requests of one patch."""

    __slots__ = ("_lost", "done")

    def __init__(self) -> None:
        self.done = NOTHING
        """The parts of the object that are as the functions have made them."""
        self._lost: tuple[tuple[str, frozenset[str], Items], ...] = ()

    def note_done(self, parts: frozenset[str]) -> None:
        """These parts were patched."""
        self.done |= parts
        self._lost = ()

    def note_lost(self, version: str, parts: frozenset[str], items: Items) -> None:
        """It is unknown if these parts were patched, as there was no response; if so, then in that very version."""
        self._lost += ((version, parts, items),)

    def settle(self, body: Mapping[str, Any], version: str) -> None:
        """Find that out by another version of the object: what is not done there, can never be done."""
        for base, parts, items in self._lost:
            if base != version and is_done(items, body):
                self.done |= parts
        self._lost = tuple(lost for lost in self._lost if lost[0] == version and not lost[1] <= self.done)


def is_done(items: Items, body: Mapping[str, Any]) -> bool:
    """
    Tell by the state of the object if it has been patched so, and possibly changed by others after that.

    One annotation of ours is enough: the records of the handlers have the times of their attempts. Without such, all
    values must be there.
    """
    values = [value for item in items for value in _list_values(item)]
    known = [resolve(body, path) == value for path, value in values if path[:2] == ("metadata", "annotations")]
    return any(known) or all(resolve(body, path) == value for path, value in values)


def _list_values(item: Mapping[str, Any]) -> Iterator[tuple[FieldPath, Any]]:
    """Give what the operation of a JSON-patch (RFC 6902) brings to which fields: ``None`` if it removes them."""
    path = tuple(key.replace("~1", "/").replace("~0", "~") for key in item["path"].split("/")[1:])
    pending: list[tuple[FieldPath, Any]] = [(path, item.get("value"))]
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping) and value:
            pending += [((*path, key), child) for key, child in value.items()]
        else:
            yield path, value


def choose(merged: Mapping[str, Any], changed: Mapping[str, Any], done: Collection[str]) -> dict[str, Any]:
    """Put an object together: of what the functions have made, and of what is left as it is in the parts done."""
    sources = {True: merged, False: changed}
    return {
        key: value
        for part, is_status in ((STATUS, True), (REST, False))
        for key, value in sources[part in done].items()
        if (key == "status") is is_status
    }
