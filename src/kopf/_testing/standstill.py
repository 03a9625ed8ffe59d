"""
Standstill: an operator that reacts to its own changes without end keeps the virtual time from passing at all.

So does a coroutine that goes round and round with nothing awaited but its next turn.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from typing import Any

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


def describe_busy_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Tell which tasks wait for nothing, and where they are."""
    busy = [task for task in asyncio.all_tasks(loop) if getattr(task, "_fut_waiter", None) is None]
    shown = "\n".join(f"{task.get_name()}:\n{_locate(task.get_coro())}" for task in busy)
    return (
        "The time stands still, though nothing happens: something goes on and on without waiting. "
        f"In loops, await something that takes time, e.g. asyncio.sleep(1). It is one of these:\n{shown}"
    )


def _locate(coro: Any) -> str:
    """Show the latest lines of the coroutine and of those that it awaits."""
    lines = []
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        lines += traceback.format_stack(frame, limit=1)
        coro = coro.cr_await
    return "".join(lines[-3:])
