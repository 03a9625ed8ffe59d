"""
The fence: behind it, nothing is done for the objects, as they can belong to another replica of the operator by now.

It is open until a deadline, which is moved on for as long as the replica can prove that it is alive. When the time has
come, it is shut, whether or not anybody has noticed: e.g. the process was frozen, and goes on in the middle of
something. It does not open by itself then: whatever was begun before, must not go on when the replica is back again.

Only what is done for objects stands behind it, i.e. the contexts that have entered. Everything else, such as leases,
peering, webhooks, and startup handlers, is never fenced: it is no matter of whose the objects are.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable
from contextvars import ContextVar


class FencedError(asyncio.CancelledError):
    """
    It is not done, as the objects can belong to another replica by now: for those who work on them, this is the end.

    It is a cancellation, so that handlers do not take it for a failure, which is to be tried again.
    """


class Fence:
    """The fence of one operator; shut in the beginning. It must be made in the event loop."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = _get_clock(asyncio.get_running_loop())
        """The clock of the deadlines, in seconds; it goes on while the process is frozen, or the machine sleeps."""
        self._deadline = -math.inf
        self._opening = 0

    @property
    def is_shut(self) -> bool:
        """Whether nothing is to be done for the objects now."""
        return self.now() >= self._deadline

    def open(self, deadline: float) -> None:
        """Open it until that time. What has entered before, remains fenced."""
        self._opening += 1
        self._deadline = deadline

    def extend(self, deadline: float) -> bool:
        """Keep it open until that time, or until a later one that was set before; tell if it was still open."""
        if self.is_shut:
            return False
        self._deadline = max(self._deadline, deadline)
        return True

    def shut(self) -> None:
        """Shut it now."""
        self._deadline = -math.inf

    def enter(self) -> None:
        """What is done in the current context from now on, is done for objects, as long as it is open."""
        _entered.set((self, self._opening))

    def check(self) -> None:
        """Raise :class:`FencedError` if what is done in the current context must not go on; in any thread."""
        entered = _entered.get()
        if entered is not None and entered[0] is self and (entered[1] != self._opening or self.is_shut):
            raise FencedError("The objects can belong to another replica of the operator by now.")


_entered: ContextVar[tuple[Fence, int] | None] = ContextVar("entered_fence", default=None)


def _get_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Not the time of real event loops: it can stand still while they do something, as in ``uvloop``."""
    if hasattr(loop, "is_virtual"):
        return loop.time
    if hasattr(time, "CLOCK_BOOTTIME"):
        return functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic
