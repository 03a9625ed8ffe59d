"""
Passages: how the objects pass the queue and the workers, told to the one who counts them.

There are as many as of all other facts together, so they are told directly: no facts are made of them, unless somebody
else listens to those.
"""

from __future__ import annotations

from typing import Protocol


class Passages(Protocol):
    """
    Counts the passages of the objects of one resource.

    Unlike listeners, it is not guarded: it has nothing but plain numbers and dictionaries, where nothing can fail.
    """

    def queue(self, key: str) -> None:
        """There is something to do for an object that was neither waiting nor worked on."""

    def begin(self, key: str) -> None:
        """A worker has taken the object."""

    def end(self, key: str) -> None:
        """The worker has done all that was to be done for the object now."""

    def look(self, key: str, duration: float, has_error: bool, delay: float | None) -> None:
        """The object was looked at for so many seconds, and that has ended in this way, see :class:`LookEnded`."""
