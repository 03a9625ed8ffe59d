"""Messages that are logged once, and again only if they change."""

from __future__ import annotations

import sys
from collections.abc import Hashable

from kopf._values.lru_dict import LRUDict


class Once:
    """
    Remembers the last message about each subject. Forget the subjects that end, or set a limit.

    :param limit: the largest number of subjects: only the latest ones are remembered. By default, there is no limit.
    """

    __slots__ = ("_said",)

    def __init__(self, *, limit: int = sys.maxsize) -> None:
        self._said: LRUDict[Hashable, Hashable] = LRUDict(limit)

    def __len__(self) -> int:
        return len(self._said)

    def is_new(self, subject: Hashable, what: Hashable = None) -> bool:
        """Tell if the message differs from the last one about the subject, and remember it."""
        if subject in self._said and self._said[subject] == what:
            return False
        self._said.note(subject, what)
        return True

    def forget(self, subject: Hashable) -> None:
        """Forget the subject: the next message about it is new."""
        self._said.pop(subject, None)
