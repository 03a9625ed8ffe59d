"""Progress of a long listing: it is shown while people wait for it. What is listed is also indexed by then."""

from __future__ import annotations

import logging

from kopf._client.resources.targets import Target
from kopf._logging.log_levels import get_guiding_level

logger = logging.getLogger(__name__)

STEP = 5000
"""From how many objects on a listing is long, and after how many objects more it is mentioned again."""


class ListingProgress:
    """Counts the objects of one listing; short listings are not mentioned."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0
        self._said = 0

    def add(self, count: int, remaining: int | None = None) -> None:
        """So many objects are taken in now; so many are to come, if that is known."""
        self._count += count
        is_long = self._count + (remaining or 0) >= STEP
        if remaining != 0 and is_long and (not self._said or self._count - self._said >= STEP):
            self._said = self._count
            total = "" if remaining is None else f" of {self._count + remaining:,}"
            self._say(f"{self._count:,}{total} objects by now")

    def finish(self) -> None:
        """Everything is listed."""
        if self._said:
            self._say(f"all {self._count:,} objects are there")

    def _say(self, text: str) -> None:
        logger.log(get_guiding_level(), "Listing of %r %s: %s.", self._target.resource, self._target.place, text)
