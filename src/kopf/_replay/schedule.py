"""
The schedule of a replay: the recorded events happen at the recorded times, and in the recorded order.

External events (responses, lines of streams, ends of calls) come when it is their time, and the operator is idle. The
schedule waits a moment for late actions of the operator, and holds early actions back. So, the clock of the operator
does not run ahead of the recorded one, however long the recording is.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence

from kopf._replay.format import RecordedEntry
from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

_ACTIONS = {"req", "open", "call"}
_GRACE = 0.05
"""How late the actions of the operator may be, in seconds: clocks of event loops are coarse."""


class Schedule:
    """
    Goes through the entries.

    :param origin: the recorded time when the replay begins, in seconds.
    :param on_stop: called at the time when the recorded operator was stopped.
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
        """The current time in the recording, in seconds."""
        return self._loop.time() - self._offset

    def has_passed(self, position: int) -> bool:
        """Tell if the time of this entry is over."""
        return position <= self._passed

    async def wait(self, position: int) -> None:
        """Wait for the time of this entry."""
        if position > self._passed:
            if position not in self._waiting:
                self._waiting[position] = self._loop.create_future()
            await asyncio.shield(self._waiting[position])

    def note_action(self, number: int) -> None:
        """Note that the operator does the action with this number."""
        self._actions[number].set()

    async def run(self) -> None:
        """Go through all entries."""
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
