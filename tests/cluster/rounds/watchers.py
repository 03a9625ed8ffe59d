"""
Watchers that break their connections at random and go on, each in its own way, from what they have seen.

All of them end when they see the object that is written after all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple

import aiohttp
import msgspec

from tests.cluster.rounds.writers import EVENTS, LAST, OBJECTS, PATH, WRITERS, Counter, Metadata

LONGEST_STATE = WRITERS * OBJECTS + 2  # all objects, the last one, and the bookmark in the end
# Events before a watcher breaks its connection. One of them outlasts a whole state, or whoever begins with the state in
# the stream would begin anew forever.
PATIENCE = (1, 20, EVENTS // 200, max(EVENTS // 30, LONGEST_STATE))
HORIZON = EVENTS // 100  # events to go back at most: less than the patience, to get on at all
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Event(NamedTuple):
    version: int
    type: str
    name: str
    n: int
    lane: str


class State(NamedTuple):
    """What exists at a version: the numbers by the names."""

    version: int
    objects: Mapping[str, int]


class RawEvent(msgspec.Struct):
    type: str
    object: Counter


class _ListMetadata(msgspec.Struct, rename={"token": "continue"}):
    resourceVersion: str
    token: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[Counter]


_events = msgspec.json.Decoder(RawEvent)
_lists = msgspec.json.Decoder(_List)


async def list_state(session: aiohttp.ClientSession, limit: int = 0) -> State:
    """List everything, in pages if there is a limit; anew if the moment of the first page is forgotten meanwhile."""
    objects: dict[str, int] = {}
    versions: set[str] = set()
    params = {"limit": str(limit)}
    while True:
        async with session.get(PATH, params=params) as response:
            if response.status == 410:
                assert "continue" in params
                objects, versions, params = {}, set(), {"limit": str(limit)}
                continue
            assert response.status == 200, await response.text()
            page = _lists.decode(await response.read())
        assert not limit or len(page.items) <= limit
        assert not objects.keys() & {item.metadata.name for item in page.items}
        objects.update((item.metadata.name, item.spec.n) for item in page.items)
        versions.add(page.metadata.resourceVersion)
        if not page.metadata.token:
            break
        params["continue"] = page.metadata.token
    (version,) = versions  # all pages show the same moment
    return State(int(version), objects)


class Watcher:
    """Remembers everything that is told, and goes on from the last version, be it of an event or of a bookmark."""

    def __init__(self, session: aiohttp.ClientSession, rnd: random.Random, version: int, **params: str) -> None:
        self.log: list[Event] = []
        self.connections = 0
        self.bookmarks = 0
        self._session = session
        self._rnd = rnd
        self._params = params
        self._version = version
        self._over = False

    async def watch(self) -> None:
        """Watch until the end of everything, with many connections."""
        while not self._over:
            await self._begin()
            if not self._over:
                self.connections += 1
                await self._listen(patience=self._rnd.choice(PATIENCE))
                self._end()

    async def watch_in_one_go(self) -> None:
        """Watch until the end of everything, with one connection."""
        await self._listen(patience=sys.maxsize)
        assert self._over

    async def _listen(self, patience: int) -> None:
        async with contextlib.aclosing(self._stream()) as stream:
            async for event in stream:
                self._take(event)
                patience -= 1
                if self._over or patience <= 0:
                    return

    async def _stream(self) -> AsyncGenerator[RawEvent, None]:
        async with self._session.get(PATH, params={"watch": "1", **self._params, **self._where()}) as response:
            assert response.status == 200, await response.text()
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _events.decode(line)

    async def _begin(self) -> None:
        """Do what is needed before a connection."""

    def _where(self) -> dict[str, str]:
        """Tell from where to go on."""
        return {"resourceVersion": str(self._version)}

    def _end(self) -> None:
        """Do what is needed after a connection."""

    def _take(self, raw: RawEvent) -> None:
        version = int(raw.object.metadata.resourceVersion)
        if raw.type == "BOOKMARK":
            assert version >= self._version
            self._version = version
            self._mark(raw.object.metadata)
            return
        assert version > self._version, f"{raw} after {self._version}"
        self._version = version
        if raw.object.metadata.name == LAST:
            self._over = True
        else:
            spec = raw.object.spec
            self._remember(Event(version, raw.type, raw.object.metadata.name, spec.n, spec.lane))

    def _mark(self, metadata: Metadata) -> None:
        self.bookmarks += 1

    def _remember(self, event: Event) -> None:
        self.log.append(event)


class ForgetfulWatcher(Watcher):
    """Goes on from any of the versions that it has seen, and must see the same again from there on."""

    def __init__(self, session: aiohttp.ClientSession, rnd: random.Random, version: int, **params: str) -> None:
        super().__init__(session, rnd, version, **params)
        self.repeated = 0
        self._first = version
        self._position = 0

    async def _begin(self) -> None:
        self._position = self._rnd.randint(max(0, len(self.log) - HORIZON), len(self.log))
        self._version = self.log[self._position - 1].version if self._position else self._first

    def _remember(self, event: Event) -> None:
        if self._position == len(self.log):
            self.log.append(event)
        else:
            self.repeated += 1
            assert event == self.log[self._position]
        self._position += 1

    def _end(self) -> None:
        assert not self._over or self._position == len(self.log)


class ReconstructingWatcher(Watcher):
    """Begins anew each time; remembers the states in which it begins and ends, not the events."""

    def __init__(self, session: aiohttp.ClientSession, rnd: random.Random, **params: str) -> None:
        super().__init__(session, rnd, 0, **params)
        self.states: list[State] = []
        self._objects: dict[str, int] = {}

    def _start_with(self, version: int) -> None:
        self._version = version
        self._over = self._objects.pop(LAST, None) is not None
        self.states.append(State(version, dict(self._objects)))

    def _remember(self, event: Event) -> None:
        assert (event.type != "ADDED") is (event.name in self._objects), event
        if event.type == "DELETED":
            del self._objects[event.name]
        else:
            self._objects[event.name] = event.n

    def _end(self) -> None:
        self.states.append(State(self._version, dict(self._objects)))


class ListingWatcher(ReconstructingWatcher):
    """Begins with a list in pages, and watches from its version."""

    async def _begin(self) -> None:
        state = await list_state(self._session, limit=self._rnd.randint(5, 100))
        self._objects = dict(state.objects)
        self._start_with(state.version)


class SleepyWatcher(ReconstructingWatcher):
    """Lists only when it must: in the beginning, and when its version is forgotten, as it sometimes sleeps too long."""

    def __init__(self, session: aiohttp.ClientSession, rnd: random.Random, *, sleep: int) -> None:
        super().__init__(session, rnd)
        self.expirations = 0
        self._sleep = sleep  # changes, not seconds
        self._expired = True

    async def _begin(self) -> None:
        if not self._expired and self._rnd.random() < 0.3:
            await self._oversleep()
        if self._expired:
            state = await list_state(self._session, limit=self._rnd.randint(5, 100))
            self._objects, self._expired = dict(state.objects), False
            self._start_with(state.version)

    async def _oversleep(self) -> None:
        last = 0
        while last < self._version + self._sleep:
            async with self._session.get(f"{PATH}/{LAST}") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.01)
            async with self._session.get(PATH, params={"limit": "1"}) as response:
                last = int(_lists.decode(await response.read()).metadata.resourceVersion)

    def _take(self, raw: RawEvent) -> None:
        if raw.type == "ERROR":
            assert raw.object.code == 410
            self._expired = True
            self.expirations += 1
        else:
            super()._take(raw)


class StreamingWatcher(ReconstructingWatcher):
    """Begins with the state in the stream itself, with a bookmark in its end."""

    def __init__(self, session: aiohttp.ClientSession, rnd: random.Random) -> None:
        super().__init__(
            session, rnd, sendInitialEvents="true", allowWatchBookmarks="true", resourceVersionMatch="NotOlderThan"
        )
        self._listing = True

    async def _begin(self) -> None:
        self._version, self._objects, self._listing = 0, {}, True

    def _where(self) -> dict[str, str]:
        return {}

    def _take(self, raw: RawEvent) -> None:
        if self._listing and raw.type != "BOOKMARK":  # these are in the order of names, not versions
            assert raw.type == "ADDED"
            assert raw.object.metadata.name not in self._objects
            self._objects[raw.object.metadata.name] = raw.object.spec.n
        else:
            super()._take(raw)

    def _mark(self, metadata: Metadata) -> None:
        super()._mark(metadata)
        if INITIAL_EVENTS_END in metadata.annotations:
            assert self._listing
            self._listing = False
            self._start_with(int(metadata.resourceVersion))

    def _end(self) -> None:
        if not self._listing:
            super()._end()
