"""
Standstill: an operator that reacts to its own changes without end keeps the virtual time from passing at all.
"""

from __future__ import annotations

from collections import Counter

from kopf._testing.journal import Write

_LIMIT = 300
"""How many times one object can be changed at one moment: a thoughtful operator needs a few."""


class StandstillGuard:
    """Counts the changes that are made to the same object while the clock stands still."""

    def __init__(self) -> None:
        self._now = 0.0
        self._counts: Counter[str] = Counter()

    def note(self, write: Write) -> str:
        """Notice a change; tell the problem if there is one, or nothing."""
        if write.time != self._now:
            self._now = write.time
            self._counts.clear()
        self._counts[write.place] += 1
        if self._counts[write.place] != _LIMIT:
            return ""
        return (
            f"{write.place} has been changed {_LIMIT} times with no time passing: something reacts to its own changes "
            f"without end, and so never settles. The latest change:\n{write}"
        )
