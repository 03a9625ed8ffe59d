"""Saying things once: what was said already is not worth repeating, until something else is to be said."""

from __future__ import annotations

from collections.abc import Hashable


class Once:
    """
    What was said last about each subject. It grows with the subjects, so they are to be forgotten when they end.

    :param limit: how many subjects are remembered, if nobody forgets them: the latest ones.
    """

    __slots__ = ("_limit", "_said")

    def __init__(self, *, limit: int | None = None) -> None:
        self._limit = limit
        self._said: dict[Hashable, Hashable] = {}

    def __len__(self) -> int:
        return len(self._said)

    def is_new(self, subject: Hashable, what: Hashable = None) -> bool:
        """Tell if this was not what was said last about the subject; it is considered as said then."""
        if subject in self._said and self._said[subject] == what:
            return False
        self._said[subject] = what
        if self._limit is not None and len(self._said) > self._limit:
            self.forget(next(iter(self._said)))
        return True

    def forget(self, subject: Hashable) -> None:
        """Whatever is said about the subject next, is new."""
        self._said.pop(subject, None)
