"""
The line of events from the stream through the indexing to the handling: no event is handled before its object is
indexed.

The events of an object always keep their order. So do the events of different objects while the indexing functions are
quick: a handler finds everything in the indices that the stream has brought before. A slow function delays only its own
object: all others overtake it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable

from kopf._client.resources.watch_machine import LISTED, WatchEvent, disown
from kopf._controller.index_feeding import IndexFeeder
from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import IndexingHandler
from kopf._values.resources import Resource
from kopf._values.slots import Slots

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""How long an object may be indexed, in seconds, until others overtake it."""

_WORKERS = 50
"""
How many objects are indexed at once, so that their functions run in threads together; overtaken ones do not count.
"""

_TURN = 200
"""How many objects are indexed in one cycle of the event loop: mostly in about 20 ms."""

_CAPACITY = 1000
"""The number of waiting events at which the stream waits; a page of a listing can exceed it."""


class _Place:
    """An event in the line."""

    __slots__ = ("event", "is_indexed", "is_overtaken", "since")

    def __init__(self, event: WatchEvent) -> None:
        self.event = event
        self.is_indexed = False
        self.is_overtaken = False
        self.since = 0.0
        """The beginning of the indexing of its object, by the clock of the event loop."""


class _Entrance:
    """Limits the events per cycle of the event loop: functions that never wait would block it."""

    def __init__(self) -> None:
        self.line: deque[_Place] = deque()
        """The events that wait for the indexing."""
        self._count = 0

    async def take(self) -> _Place | None:
        """Return the next event; ``None`` if other workers were faster."""
        while self._count == _TURN:  # noqa: ASYNC110  # it is for one cycle of the event loop
            await asyncio.sleep(0)
        if not self.line:
            return None
        if not self._count:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._count += 1
        return self.line.popleft()

    def _begin_turn(self) -> None:
        self._count = 0


class _Exit:
    """Passes the events on in the order of the line, and overtaken ones as soon as they are indexed."""

    def __init__(self, accept: Callable[[Iterable[WatchEvent]], None]) -> None:
        self.accept = accept
        """Accepts the indexed events."""
        self.line: deque[_Place] = deque()
        """The events in the order of leaving."""
        self.awaited: dict[Callable[[], None], set[_Place]] = {}
        """Callbacks, and the events that must be indexed before."""
        self._count = 0
        self._has_room = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether too many events wait."""
        return self._count >= _CAPACITY

    async def wait_for_room(self) -> None:
        """Wait as long as it is full."""
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def add(self, places: Collection[_Place]) -> None:
        """Append the events to the line."""
        self._count += len(places)
        self.line.extend(places)

    def leave(self, place: _Place) -> None:
        """Pass on the indexed event, and the events that have waited for it."""
        if place.is_overtaken:
            self._pass_on([place.event])
        else:
            self.advance()
        for callback, places in [*self.awaited.items()] if self.awaited else ():  # this runs for every event
            places.discard(place)
            if not places:
                del self.awaited[callback]
                callback()

    def advance(self) -> None:
        """Pass on the events that wait for no others."""
        ready: list[WatchEvent] = []
        while self.line and (self.line[0].is_indexed or self.line[0].is_overtaken):
            place = self.line.popleft()
            if not place.is_overtaken:
                ready.append(place.event)
        if ready:
            self._pass_on(ready)

    def _pass_on(self, events: list[WatchEvent]) -> None:
        self._count -= len(events)
        if not self.is_full:
            self._has_room.set()
        self.accept(events)


class IndexingLine:
    """
    The line of events of one resource. If nothing is indexed, it passes them on at once.

    ``accept`` is called with the indexed events.

    Large because it has both ends of the line, and the workers in between.
    """

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: Collection[IndexingHandler],
        accept: Callable[[Iterable[WatchEvent]], None],
    ) -> None:
        self._context = runtime.context
        self._name = f"indexing of {resource!r}"
        self._feeder = IndexFeeder(runtime, resource, handlers)
        self._exit = _Exit(accept)
        self.wait_for_room = self._exit.wait_for_room
        self._is_needed = bool(handlers)
        self._entrance = _Entrance()
        self._begun: dict[str, list[_Place]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, events: Iterable[WatchEvent]) -> None:
        """Accept events: from now on, they are neither lost nor doubled."""
        if not self._is_needed:
            self._exit.accept(events)
            return
        places = [_Place(event) for event in events if event is not LISTED]
        self._exit.add(places)
        self._entrance.line.extend(places)
        self._add_workers()

    def _add_workers(self) -> None:
        limit = _WORKERS + sum(places[0].is_overtaken for places in self._begun.values())
        for _ in range(min(limit - len(self._workers), len(self._entrance.line))):
            # In a copy of the context of the start, like other workers: it must not see variables set by others.
            loop, context = asyncio.get_running_loop(), self._context.copy()
            self._workers.add(loop.create_task(self._work(), name=self._name, context=context))

    async def _work(self) -> None:
        """Index one object after another, until there are no more, or others overtake this worker."""
        is_overtaken = False
        try:
            while not is_overtaken and (place := await self._entrance.take()) is not None:
                key = place.event.object.head.key
                if (others := self._begun.get(key)) is not None:
                    others.append(place)
                    place.is_overtaken = others[0].is_overtaken
                else:
                    is_overtaken = await self._follow(key, place)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._workers.discard(task)  # at once: another worker can be needed at once

    async def _follow(self, key: str, place: _Place) -> bool:
        """Index one event of the object after another, until there are no more; return whether others overtake it."""
        places = self._begun[key] = [place]
        while places:
            place = places[0]
            await self._index(place)
            del places[0]
            if not places:
                del self._begun[key]
            self._exit.leave(place)
        return place.is_overtaken

    async def _index(self, place: _Place) -> None:
        try:
            calls = self._feeder.plan(place.event)
            if calls is not None:
                loop = asyncio.get_running_loop()
                place.since = loop.time()
                if self._timer is None:
                    self._timer = loop.call_at(place.since + _PATIENCE, self._look)
                await self._feeder.call(calls)
        except Exception:
            logger.critical("The %s has failed; this is a bug of the framework.", self._name, exc_info=True)
        place.is_indexed = True

    def _look(self) -> None:
        """Check if the indexing of any object takes too long."""
        self._timer = None
        waited = [places for places in self._begun.values() if not places[0].is_overtaken]
        if not waited:
            return
        loop, due = asyncio.get_running_loop(), min(places[0].since for places in waited) + _PATIENCE
        if due > loop.time():
            self._timer = loop.call_at(due, self._look)
        else:
            self._overtake(waited)

    def _overtake(self, waited: list[list[_Place]]) -> None:
        """Overtake all objects under way: with only some, events of one object could overtake each other."""
        for places in waited:
            for place in places:
                place.is_overtaken = True
        self._exit.advance()
        self._add_workers()

    def disown(self, slots: Slots) -> None:
        """Mark the waiting events of these slots: they came when other replicas handled the objects."""
        begun = (place for places in self._begun.values() for place in places)
        for place in {*self._exit.line, *self._entrance.line, *begun}:
            [place.event] = disown([place.event], slots)

    def call_when_indexed(self, callback: Callable[[], None]) -> None:
        """Call the callback when all current events are indexed: at once, if there are none."""
        places = {*self._entrance.line, *(place for places in self._begun.values() for place in places)}
        if places:
            self._exit.awaited[callback] = places
        else:
            callback()

    async def stop(self) -> None:
        """Forget everything that is not indexed yet. Functions that hang in threads are left alone."""
        if self._timer is not None:
            self._timer.cancel()
        self._entrance.line.clear()
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait([*self._workers])
