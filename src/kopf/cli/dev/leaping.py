"""
Leaps in time, under ``kopf dev``: the operator goes on as after a long sleep of its machine, e.g. of a laptop.

All that is due by then in the event loop happens at once, and only once: timers, delayed retries, sleeps, timeouts. The
date changes for the whole process, with the handlers and their libraries. Other waits are not affected:
``time.sleep()``, other processes, other servers.
"""

from __future__ import annotations

import asyncio
import datetime
import sys
import threading
from typing import TYPE_CHECKING, Any

from kopf._handlers.time_source import TimeSource

if TYPE_CHECKING or sys.platform != "win32":
    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = asyncio.ProactorEventLoop

_POLLING = 1.0
"""How often waiting threads check the clock of the loop, in seconds."""


class LeapingLoop(_Loop):
    """An event loop whose clock can leap forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        """How far the clock is ahead of the real time, in seconds."""
        self._traveller: Any = None
        super().__init__()

    def time(self) -> float:
        return super().time() + self.ahead

    def leap(self, seconds: float) -> None:
        """Move the clock of the loop. The timers that are due run after the current step of the loop."""
        self.ahead += seconds

    def leap_with_process(self, seconds: float) -> None:
        """
        Move the clock of the loop, and the date and time of Python in the whole process.

        Raises :class:`ImportError` if the library for that is not installed.
        """
        import time_machine

        if self._traveller is None:
            target = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
            self._traveller = time_machine.travel(target, tick=True).start()
        else:
            self._traveller.shift(seconds)
        self.leap(seconds)


class LeapingEvent(threading.Event):
    """An event whose timeouts are by the clock of the loop."""

    def __init__(self, loop: LeapingLoop) -> None:
        super().__init__()
        self._loop = loop

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        deadline = self._loop.time() + timeout
        while not super().wait(max(0.0, min(_POLLING, left := deadline - self._loop.time()))):
            if left <= _POLLING:
                return False
        return True


class LeapingTime(TimeSource):
    """The time of the process; threads wait by the clock of the loop."""

    def __init__(self, loop: LeapingLoop) -> None:
        self._loop = loop

    def make_event(self) -> threading.Event:
        return LeapingEvent(self._loop)
