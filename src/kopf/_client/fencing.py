"""
The fence: when it is shut, this replica does nothing for the objects, as they can belong to another replica by now.

The fence is open until a deadline. The replica extends the deadline as long as it can prove that it is alive. After the
deadline, the fence is shut, even if nobody has noticed: e.g. the process was frozen, and continues in the middle of its
work. Work that began before must not continue when the replica is back, so the fence does not open again by itself.

The fence stops only contexts that have entered, i.e. the work for objects. It never stops leases, peering, webhooks,
and startup handlers, as they do not depend on the owner of the objects.
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
    The work is stopped, as the objects can belong to another replica by now.

    It is a cancellation, so that nobody takes it for a failure of a handler and retries it.
    """


class Fence:
    """The fence of one operator. It is shut at first, and must be created in the event loop."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = _get_clock(asyncio.get_running_loop())
        """The clock of the deadlines, in seconds. It runs on while the process is frozen or the machine sleeps."""
        self._deadline = -math.inf
        self._opening = 0

    @property
    def is_shut(self) -> bool:
        """Whether work for the objects must stop now."""
        return self.now() >= self._deadline

    def open(self, deadline: float) -> None:
        """Open it until the deadline. Contexts that have entered before an earlier closing stay fenced."""
        self._opening += 1
        self._deadline = deadline

    def extend(self, deadline: float) -> bool:
        """Keep it open until the deadline, or a later one that was set before. Return whether it was still open."""
        if self.is_shut:
            return False
        self._deadline = max(self._deadline, deadline)
        return True

    def shut(self) -> None:
        """Shut it now."""
        self._deadline = -math.inf

    def enter(self) -> None:
        """Put the current context behind the fence: from now on, it works for objects."""
        _entered.set((self, self._opening))

    def check(self) -> None:
        """Raise :class:`FencedError` if the work in the current context must stop. It works in any thread."""
        entered = _entered.get()
        if entered is not None and entered[0] is self and (entered[1] != self._opening or self.is_shut):
            raise FencedError("This replica is fenced: its objects can belong to another replica by now.")


_entered: ContextVar[tuple[Fence, int] | None] = ContextVar("entered_fence", default=None)


def _get_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Get a real clock: the time of event loops such as ``uvloop`` can stand still while they work."""
    if hasattr(loop, "is_virtual"):
        return loop.time
    if hasattr(time, "CLOCK_BOOTTIME"):
        return functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic
