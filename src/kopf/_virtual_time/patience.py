"""Patience: what is stuck is told from what is slow only because the machine is busy, or was asleep."""

from __future__ import annotations

import time

PATIENCE = 30.0
"""How long a handler may take of the real time by default, in seconds: imports take many on busy machines."""

_DELAY = 0.01
"""How much later than asked for a process may be woken up by a machine that has time for it, in seconds."""


class Patience:
    """
    Measures for how long something is waited for, by looking at it again and again.

    A look that comes much later than it should have come, says nothing about what is waited for: neither that nor the
    one who looks has got a processor meanwhile. So only as much of it counts as such a look takes normally.
    """

    __slots__ = ("_looked", "_waited")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was a sign of life."""
        self._waited = 0.0
        self._looked = time.monotonic()

    def is_over(self, limit: float, *, pause: float) -> bool:
        """Tell if it is too long by now, after one more pause between the looks; both in seconds of the real time."""
        now = time.monotonic()
        self._waited += min(now - self._looked, 2 * pause + _DELAY)
        self._looked = now
        return self._waited >= limit


class SimulationError(Exception):
    """The simulation cannot go on: it is used in a wrong way, or something in it is stuck."""


NOT_BEGUN = "The simulation has not begun: use it as a context manager."
