"""
The backlog of raw events: those that wait for their handlers, object by object, in the order they came.

Every event counts, so they cannot be replaced by newer ones; but they must not fill the memory either, e.g. when
a handler hangs. So when there are too many of them, no more are taken in.
"""

from __future__ import annotations

import asyncio
from collections import deque

from kopf._client.resources.watch_machine import WatchEvent

_ENOUGH_EVENTS = 10_000
"""How many events can wait until no more of them are taken in."""

_ENOUGH_BYTES = 64 * 1024 * 1024
"""The same in bytes of JSON: large objects are up to 3 MiB each."""


class EventBacklog:
    """The waiting events of one resource, by the keys of the objects."""

    def __init__(self) -> None:
        self._events: dict[str, deque[WatchEvent]] = {}
        self.keys = self._events.keys()
        """The keys of the objects that have events here."""
        self._count = 0
        self.size = 0
        """How much memory the events take, in bytes of JSON."""
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def put(self, key: str, event: WatchEvent) -> None:
        """Let the event wait after all others of that object."""
        self._count += 1
        self.size += event.object.size
        events = self._events.get(key)
        if events is None:
            self._events[key] = deque((event,))
        else:
            events.append(event)

    def take(self, key: str) -> WatchEvent:
        """Take the next event of the object out; there must be any."""
        events = self._events[key]
        event = events.popleft()
        if not events:
            del self._events[key]
        self._count -= 1
        self.size -= event.object.size
        if self._count <= _ENOUGH_EVENTS // 2 and self.size <= _ENOUGH_BYTES // 2:
            self._room.set()
        return event

    def get_last(self, key: str) -> WatchEvent | None:
        """The latest event of the object, if any are waiting."""
        events = self._events.get(key)
        return events[-1] if events else None

    @property
    def is_full(self) -> bool:
        """Whether no more events are to be taken in."""
        return self._count >= _ENOUGH_EVENTS or self.size >= _ENOUGH_BYTES

    async def wait_for_room(self) -> None:
        """Wait until half of it is free."""
        self._room.clear()
        await self._room.wait()
