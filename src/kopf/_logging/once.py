"""Saying it once: what was already warned of is not repeated for every object, request, or event."""

from __future__ import annotations

from collections.abc import Hashable


class Warnings:
    """What was already warned of."""

    def __init__(self) -> None:
        self._known: set[Hashable] = set()

    def is_new(self, key: Hashable) -> bool:
        """Tell if it was not warned of yet; it is considered as warned then."""
        is_new = key not in self._known
        self._known.add(key)
        return is_new
