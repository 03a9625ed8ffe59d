"""Messages that are logged once, and again only if they change."""

from __future__ import annotations

from collections.abc import Hashable


class Once:
    """
    Remembers the last message about each subject. Forget the subjects that end, or set a limit.

    :param limit: the largest number of subjects: only the latest ones are remembered. By default, there is none.
    """

    __slots__ = ("_limit", "_said")

    def __init__(self, *, limit: int | None = None) -> None:
        self._limit = limit
        self._said: dict[Hashable, Hashable] = {}

    def __len__(self) -> int:
        return len(self._said)

    def is_new(self, subject: Hashable, what: Hashable = None) -> bool:
        """Tell if the message differs from the last one about the subject, and remember it."""
        if subject in self._said and self._said[subject] == what:
            return False
        self._said[subject] = what
        if self._limit is not None and len(self._said) > self._limit:
            self.forget(next(iter(self._said)))
        return True

    def forget(self, subject: Hashable) -> None:
        """Forget the subject: the next message about it is new."""
        self._said.pop(subject, None)
