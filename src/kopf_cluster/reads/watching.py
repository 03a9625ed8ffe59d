"""
Watch streams: from a revision on, every change of the selected objects, in order, neither lost nor repeated.

A watcher holds no events: it is a position in the log of the bucket (see `watch_cache`), and wakes up when the log
grows. It sends all new changes in one piece. The objects were encoded when they were written, so that an event costs
just a few more bytes for each watcher. A watcher that is too slow, so that the log has forgotten its position, gets the
error 410, as in a real cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final

import msgspec

from kopf_cluster import codec, statuses
from kopf_cluster.encodings import Frames
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind
from kopf_cluster.kinds.selectors import Predicate
from kopf_cluster.kinds.shards import Shards
from kopf_cluster.reads.representations import Representation
from kopf_cluster.requests import with_warnings
from kopf_cluster.sessions import Session
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Bucket, Change, Compacted, Record

BATCH: Final = 1000
"""The maximal number of changes in one piece."""

DEFAULT_TIMEOUT: Final = 1800.0
"""The minimal default lifetime of a watch, in seconds; the maximum is twice as much."""

RETRY: Final = 1.0
"""The time until failed conversions are tried again, in seconds."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Selection(msgspec.Struct, frozen=True):
    """The objects of a kind that a reader selects."""

    namespace: str | None = None
    labels: Predicate | None = None
    fields: Predicate | None = None
    shards: Shards | None = None

    @property
    def has_selectors(self) -> bool:
        return self.labels is not None or self.fields is not None or self.shards is not None

    @property
    def everything(self) -> bool:
        return self.namespace is None and not self.has_selectors

    def accepts(self, record: Record) -> bool:
        return (
            (self.namespace is None or record.key[0] == self.namespace)
            and (self.labels is None or self.labels(record))
            and (self.fields is None or self.fields(record))
            and (self.shards is None or self.shards(record))
        )

    def classify(self, change: Change) -> str | None:
        """Return the type of the change for this reader, for whom objects come and go with their selection."""
        before = change.previous is not None and self.accepts(change.previous)
        if change.type != "DELETED" and self.accepts(change.record):
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


class WatchOptions(msgspec.Struct, frozen=True):
    """The options of a watch. All times are in seconds."""

    since: int | None = None
    """The revision to continue from; none to begin with the current state as additions."""
    bookmarks: bool = False
    bookmark_interval: float = 60.0
    mark_initial_end: bool = False
    timeout: float | None = None


class Watch:
    """One watch stream."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        selection: Selection,
        form: Representation,
        options: WatchOptions,
        frames: Frames,
    ) -> None:
        self.content_type = frames.content_type
        self._frames = frames
        self.headers = with_warnings({}, kind.warnings)
        self._store = store
        self._bucket: Bucket = store.bucket(kind.bucket)
        self._kind = kind
        self._selection = selection
        self._form = form
        self._options = options
        self._wakeup = asyncio.Event()
        self._over = False
        self._bookmark_due = False
        self._first = True
        self._position = 0

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of the stream, each of whole lines, until the timeout or an error."""
        loop = asyncio.get_running_loop()
        timeout = self._options.timeout
        if timeout is None:
            timeout = DEFAULT_TIMEOUT * random.uniform(1, 2)
        timers = [loop.call_later(timeout, self._finish)]
        if self._options.bookmarks:
            timers.append(loop.call_later(self._options.bookmark_interval, self._request_bookmark))
        self._bucket.listeners[self._wakeup.set] = None
        try:
            yield b"".join(await self._converted(self._begin) if self._kind.converter else self._begin())
            while not self._over and not self._bucket.closed:
                await self._wakeup.wait()
                self._wakeup.clear()
                for chunk in await self._converted(self._collect) if self._kind.converter else self._collect():
                    yield chunk
                if self._bookmark_due and not self._owes_events() and not self._over:
                    self._bookmark_due = False
                    yield self._bookmark()
                    timers[1] = loop.call_later(self._options.bookmark_interval, self._request_bookmark)
            for chunk in await self._converted(self._collect) if self._kind.converter else self._collect():
                yield chunk
            if self._options.bookmarks and not self._bucket.closed and not self._owes_events():
                yield self._bookmark()
        except Compacted as error:
            yield self._error(
                statuses.expired(f"too old resource version: {self._options.since or error.requested} ({error.oldest})")
            )
        except statuses.APIStatus as error:  # from the conversion
            yield self._error(error)
        finally:
            self._bucket.listeners.pop(self._wakeup.set, None)
            for timer in timers:
                timer.cancel()

    async def _converted(self, pieces: Callable[[], Iterator[bytes]]) -> list[bytes]:
        """Return the pieces in the requested version, converted by webhooks.

        If they fail, an open stream stays silent, and tries it again later, as in a real server.
        """
        position, first = self._position, self._first

        def attempt() -> list[bytes]:
            self._position, self._first = position, first
            return list(pieces())

        try:
            return await Session().run(attempt)
        except statuses.APIStatus:
            if pieces == self._begin:
                raise
            self._position = position
            asyncio.get_running_loop().call_later(RETRY, self._wakeup.set)
            return []

    def _owes_events(self) -> bool:
        """Whether there are events that are not sent yet, so that a bookmark would skip them."""
        return bool(self._bucket.read(self._position, 1))

    def _finish(self) -> None:
        self._over = True
        self._wakeup.set()

    def _request_bookmark(self) -> None:
        self._bookmark_due = True
        self._wakeup.set()

    def _begin(self) -> Iterator[bytes]:
        """Find the position in the log; without a revision to start from, yield the current state first."""
        if self._options.since is not None:
            self._position = self._bucket.position(self._options.since)
        else:
            self._position = self._bucket.position(self._store.revision)
            if self._kind.converter is not None:
                candidates = self._bucket.select(self._selection.namespace)
                if self._selection.fields is None:  # the fields can be looked up in converted objects only
                    candidates = filter(self._selection.accepts, candidates)
                self._kind.converter.require(self._kind, candidates)
            for record in self._bucket.select(self._selection.namespace):
                if self._selection.accepts(record):
                    yield self._line("ADDED", record)
            if self._options.mark_initial_end:
                yield self._bookmark({"annotations": {INITIAL_EVENTS_END: "true"}})
        self._wakeup.set()

    def _collect(self) -> Iterator[bytes]:
        """Yield the new changes of the log in pieces."""
        while changes := self._bucket.read(self._position, BATCH):
            self._position += len(changes)
            if self._kind.converter is not None:
                states = [change.record for change in changes]
                if self._selection.fields is not None:
                    states += [change.previous for change in changes if change.previous is not None]
                self._kind.converter.require(self._kind, states)
            lines = [line for change in changes if (line := self._tell(change)) is not None]
            if lines:
                yield b"".join(lines)

    def _tell(self, change: Change) -> bytes | None:
        if self._options.since is not None and change.record.revision <= self._options.since:
            return None  # the client has asked for later changes only
        kind = change.type if self._selection.everything else self._selection.classify(change)
        if kind is None:
            return None
        return self._line(kind, self._state(change, kind))

    def _state(self, change: Change, kind: str) -> Record:
        """Return the state to send: the previous one at the new revision, if the object is no longer selected."""
        if kind == "DELETED" and change.type != "DELETED" and change.previous is not None:
            return objects.restamp(change.previous, change.record.revision)
        return change.record

    def _line(self, type_: str, record: Record) -> bytes:
        return self._frame(type_, self._form.one(self._kind, record, self._first))

    def _frame(self, type_: str, encoded: bytes) -> bytes:
        self._first = False
        return self._frames.frame(type_, encoded)

    def _bookmark(self, extra: dict[str, object] | None = None) -> bytes:
        metadata = {"resourceVersion": str(self._store.revision), "creationTimestamp": None, **(extra or {})}
        obj = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        return self._frame("BOOKMARK", self._form.bookmark(self._kind, obj, self._first))

    def _error(self, status: statuses.APIStatus) -> bytes:
        return self._frames.frame("ERROR", codec.encode(status.as_object()))
