"""
The schedule of a replay: the recorded things happen at the recorded moments, and in the recorded order.

What comes from outside (responses, lines of streams, ends of calls) is let through when its time has come, and when the
operator has done all that it has to do. What the operator does, is waited for a moment if it is late, and is held back
if it is early: so, its own clock does not run ahead of the recorded one, however long the story is.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence

from kopf._replay.format import RecordedEntry
from kopf._virtual_time.virtual_time import VirtualTimeLoop

_ACTIONS = {"req", "open", "call"}
_GRACE = 0.05
"""How late the operator may be with what it does, in seconds: clocks of event loops are coarse."""


class Schedule:
    """
    Goes through the entries.

    :param origin: the recorded time at which the replay begins.
    :param on_stop: who is told when the recorded operator was told to stop.
    """

    def __init__(
        self, entries: Sequence[RecordedEntry], loop: VirtualTimeLoop, origin: float, on_stop: Callable[[], None]
    ) -> None:
        self._entries = entries
        self._loop = loop
        self._offset = loop.time() - origin
        self._origin = origin
        self._on_stop = on_stop
        self._passed = -1
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._actions: dict[int, asyncio.Event] = collections.defaultdict(asyncio.Event)

    @property
    def now(self) -> float:
        """The time as it is recorded."""
        return self._loop.time() - self._offset

    def has_passed(self, position: int) -> bool:
        """Tell if the moment of this entry is over."""
        return position <= self._passed

    async def wait(self, position: int) -> None:
        """Wait for the moment of this entry."""
        if position > self._passed:
            if position not in self._waiting:
                self._waiting[position] = self._loop.create_future()
            await asyncio.shield(self._waiting[position])

    def note_action(self, number: int) -> None:
        """Take notice that the operator does what was recorded with this number."""
        self._actions[number].set()

    async def run(self) -> None:
        """Let everything happen."""
        for position, entry in enumerate(self._entries):
            if entry.time > self._origin or not self._origin:  # otherwise, it is over before the replay begins
                await self._sleep_until(entry.time)
            if entry.kind in _ACTIONS:
                await self._expect(entry)
            elif entry.kind == "stop":
                self._on_stop()
            self._pass(position)
        await self._sleep_until(self.now + _GRACE)

    async def _sleep_until(self, time: float) -> None:
        if time > self.now:
            await asyncio.sleep(time - self.now)
        await self._loop.be_idle()

    async def _expect(self, entry: RecordedEntry) -> None:
        event = self._actions[entry.number]
        if event.is_set() or entry.time < self._origin:
            return
        try:
            async with asyncio.timeout(max(0.0, entry.time + _GRACE - self.now)):
                await event.wait()
        except TimeoutError:
            return

    def _pass(self, position: int) -> None:
        self._passed = position
        waiting = self._waiting.pop(position, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
