"""
The wall clock of a simulation: a date that begins where it is told to, and goes along with the virtual time.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import warnings
from collections.abc import Iterator

from kopf._handlers.time_source import TimeSource, time_source
from kopf._virtual_time.threaded_loop import VirtualEvent
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

_REMEDY = "pip install time-machine"
_TWO_CLOCKS = (
    "In this simulation, objects are of {}, but datetime.now() and time.time() tell the real time: "
    f"one clock for all needs a library ({_REMEDY}). With freeze_wall_clock=False, that is as it should be."
)


class SkewedClock(TimeSource):
    """The clock of a machine that is fast by some seconds, or slow if they are negative."""

    def __init__(self, clock: TimeSource) -> None:
        self.skew = 0.0
        self._clock = clock

    def now(self) -> datetime.datetime:
        return self._clock.now() + datetime.timedelta(seconds=self.skew)

    def make_event(self) -> threading.Event:
        return self._clock.make_event()


class SimulatedClock(TimeSource):
    """
    Tells the date and time in the simulation.

    :param is_frozen: whether all in this process are told the same, by whatever means of Python they ask; by default,
        if the library for that is there.
    """

    def __init__(self, start: datetime.datetime, *, is_frozen: bool | None) -> None:
        self._start = start if start.tzinfo is not None else start.replace(tzinfo=datetime.UTC)
        self._is_frozen = is_frozen
        self._loop: VirtualTimeLoop | None = None

    def now(self) -> datetime.datetime:
        elapsed = self._loop.elapsed if self._loop is not None else 0.0
        return (self._start + datetime.timedelta(seconds=elapsed)).astimezone(datetime.UTC)

    def make_event(self) -> threading.Event:
        return VirtualEvent()

    def move(self, seconds: float) -> None:
        """Move the clock, forward or backward if negative."""
        self._start += datetime.timedelta(seconds=seconds)
        if self._loop is not None:
            self._loop.on_jump(seconds)

    def follow(self, loop: VirtualTimeLoop) -> None:
        """Go along with the time of the loop."""
        self._loop = loop

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let all in this context have this time; and the whole process, if it must be frozen."""
        token = time_source.set(self)
        try:
            with self._freezing():
                yield
        finally:
            with contextlib.suppress(ValueError):  # the context is another one: it has never been set there
                time_source.reset(token)

    @contextlib.contextmanager
    def _freezing(self) -> Iterator[None]:
        loop = self._loop
        if self._is_frozen is False or loop is None:
            yield
            return
        try:
            import time_machine
        except ImportError as e:
            if self._is_frozen:
                raise ImportError(f"freeze_wall_clock needs a library: {_REMEDY}", name=e.name) from e
            warnings.warn(_TWO_CLOCKS.format(self.now().date()), stacklevel=2)
            yield
            return
        with time_machine.travel(self.now(), tick=False) as traveller:
            loop.on_jump = traveller.shift
            try:
                yield
            finally:
                loop.on_jump = lambda seconds: None
