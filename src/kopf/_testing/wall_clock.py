"""
The wall clock of a simulation: a date that begins where it is told to, and goes along with the virtual time.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator

from kopf._testing.virtual_time import VirtualTimeLoop


class SimulatedClock:
    """
    Tells the date and time in the simulation.

    :param is_frozen: whether all in this process are told the same, by whatever means of Python they ask.
    """

    def __init__(self, start: datetime.datetime, *, is_frozen: bool) -> None:
        self._start = start if start.tzinfo is not None else start.replace(tzinfo=datetime.UTC)
        self._is_frozen = is_frozen
        self._loop: VirtualTimeLoop | None = None

    def tell(self) -> datetime.datetime:
        """Give the current date and time, with the time zone (UTC)."""
        elapsed = self._loop.elapsed if self._loop is not None else 0.0
        return (self._start + datetime.timedelta(seconds=elapsed)).astimezone(datetime.UTC)

    def move(self, seconds: float) -> None:
        """Move the clock, forward or backward if negative."""
        self._start += datetime.timedelta(seconds=seconds)
        if self._loop is not None:
            self._loop.on_jump(seconds)

    def follow(self, loop: VirtualTimeLoop) -> None:
        """Go along with the time of the loop."""
        self._loop = loop

    @contextlib.contextmanager
    def freezing(self) -> Iterator[None]:
        """Let the whole process have this time, if it is to be frozen."""
        loop = self._loop
        if not self._is_frozen or loop is None:
            yield
            return
        try:
            import time_machine
        except ImportError as e:
            raise ImportError("freeze_wall_clock needs a library: pip install time-machine", name=e.name) from e
        with time_machine.travel(self.tell(), tick=False) as traveller:
            loop.on_jump = traveller.shift
            try:
                yield
            finally:
                loop.on_jump = lambda seconds: None
