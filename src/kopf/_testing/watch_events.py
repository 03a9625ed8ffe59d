"""
The watch events of the operator: tests can delay or repeat single events, or send old ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from kopf._testing.simulation_core import SimulationCore
from kopf._values import codec
from kopf._virtual_time.journal import ObjectPlace

_NOISE = frozenset({"events", "leases"})
"""The resources that are written in the background, at any time: their events do not count."""
_TOLD = frozenset({"ADDED", "MODIFIED", "DELETED"})


class WatchEvent(NamedTuple):
    """An event of a watch, as the operator was told."""

    type: str
    resource: str
    """The plural name with the group, as in the journal."""
    namespace: str
    name: str

    @property
    def place(self) -> ObjectPlace:
        """The object of the event."""
        return ObjectPlace(*self[1:])

    def __str__(self) -> str:
        return f"{self.type} {self.place}"


Telling = Callable[[bytes, bytes], AsyncGenerator[bytes, None]]
"""How an event is told, by its line and by the latest one about the same object before that, if there was one."""


@dataclasses.dataclass(eq=False)
class _PlannedTelling:
    left: int
    resource: str
    note: str
    tell: Telling


class WatchEvents:
    """
    Counts the events that the operator is told of, and tells some of them in another way.

    The streams are not looked into before the first telling is planned, or before it is asked to :meth:`listen`.
    """

    def __init__(self, simulation: SimulationCore) -> None:
        self.seen: list[WatchEvent] = []
        """The events that the operator was told of, since the first listener."""
        self._simulation = simulation
        self._planned: list[_PlannedTelling] = []
        self._latest: dict[ObjectPlace, bytes] = {}
        self._over = asyncio.Event()
        self.due = 0.0
        """Until when something is held back, in the time of the loop."""
        self._is_listening = False

    def listen(self) -> None:
        """Take notice of all events from now on."""
        if not self._is_listening:
            self._is_listening = True
            self._simulation.cluster.faults.retellers.append(self._retell)

    def plan(self, number: int, resource: str, note: str, tell: Telling) -> None:
        """Let the event of this number, from now on, be told in that way: 1 is for the next one."""
        if number < 1:
            raise ValueError(f"The events are counted from 1, got {number}.")
        self.listen()
        self._planned.append(_PlannedTelling(number, resource, note, tell))

    async def wait(self, seconds: float) -> None:
        """Hold the stream back for so long, or until the trouble is over."""
        self.due = max(self.due, asyncio.get_running_loop().time() + seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    def clear(self) -> None:
        """Send all delayed events at once, and all later ones unchanged."""
        self._planned.clear()
        self.due = 0.0
        over, self._over = self._over, asyncio.Event()
        over.set()

    def _retell(self, call: Any, request: Any, line: bytes) -> AsyncGenerator[bytes, None] | None:
        if call.verb != "watch" or request.user.name != self._simulation.user or call.plural in _NOISE:
            return None
        event = _read(call, line)
        if event is None:
            return None
        self.seen.append(event)
        before, self._latest[event.place] = self._latest.get(event.place, b""), line
        due = [planned for planned in self._planned if self._is_due(planned, event)]
        for planned in due:
            self._planned.remove(planned)
            self._simulation.journal.note(f"{planned.note}: {event}")
        return due[-1].tell(line, before) if due else None

    @staticmethod
    def _is_due(planned: _PlannedTelling, event: WatchEvent) -> bool:
        if planned.resource not in ("", event.resource, event.resource.partition(".")[0]):
            return False
        planned.left -= 1
        return planned.left == 0


def _read(call: Any, line: bytes) -> WatchEvent | None:
    """Read the event; return ``None`` for events about the stream itself: bookmarks and errors."""
    event = codec.decode(line)
    if event["type"] not in _TOLD:
        return None
    resource = f"{call.plural}.{call.group}" if call.group else call.plural
    metadata = event["object"]["metadata"]
    return WatchEvent(event["type"], resource, metadata.get("namespace", ""), metadata["name"])
