"""
Watch streams: from a revision on, every change of the selected objects, in order, with nothing lost or repeated.

A watcher holds no events: it is a position in the bucket's log, woken up when the log grows. It takes what is new
in one go and sends it in one piece. The objects were encoded when they were written, so that a line of the stream
is just a few bytes put around, however many are watching. A watcher that is so slow that the log has forgotten
what it needs next gets the error 410, as in a real cluster.
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
from kopf_cluster.store.storage import Bucket, Change, Compacted, Record, Store

BATCH: Final = 1000
"""How many changes are sent in one piece at most."""

DEFAULT_TIMEOUT: Final = 1800.0
"""How long a watch lives if the client does not say, in seconds: between this and twice as much."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind a reader is interested in."""

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
        """Tell what the change is for this reader: objects come and go as they start and stop being selected."""
        before = change.previous is not None and self.accepts(change.previous)
        if change.type != "DELETED" and self.accepts(change.record):
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


class WatchOptions(msgspec.Struct, frozen=True):
    """How to watch. All times are in seconds."""

    since: int | None = None
    """The revision to go on from; none to begin with the current state as if it was just created."""
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
        """Give the pieces of the stream, each of whole lines, until the timeout or an error."""
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
                if self._bookmark_due and not self._over:
                    self._bookmark_due = False
                    yield self._bookmark()
                    timers[1] = loop.call_later(self._options.bookmark_interval, self._request_bookmark)
            for chunk in await self._converted(self._collect) if self._kind.converter else self._collect():
                yield chunk
            if self._options.bookmarks and not self._bucket.closed:
                yield self._bookmark()  # right after an empty look at the log, so that nothing is skipped
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
        """Take the pieces in the requested version, whatever must be asked for that."""
        position, first = self._position, self._first

        def attempt() -> list[bytes]:
            self._position, self._first = position, first
            return list(pieces())

        return await Session().run(attempt)

    def _finish(self) -> None:
        self._over = True
        self._wakeup.set()

    def _request_bookmark(self) -> None:
        self._bookmark_due = True
        self._wakeup.set()

    def _begin(self) -> Iterator[bytes]:
        """Find the place in the log; with no revision to start from, tell the current state first."""
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
        """Take what is new in the log, and make pieces of it."""
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
            return None  # the client has asked for the future, and it is not there yet
        kind = change.type if self._selection.everything else self._selection.classify(change)
        if kind is None:
            return None
        return self._line(kind, self._state(change, kind))

    def _state(self, change: Change, kind: str) -> Record:
        """An object that stops being selected is shown as it was before, but at the revision of the change."""
        if kind == "DELETED" and change.type != "DELETED" and change.previous is not None:
            previous = objects.open_record(self._kind, change.previous)
            return objects.seal(self._kind, previous, change.record.revision)
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
