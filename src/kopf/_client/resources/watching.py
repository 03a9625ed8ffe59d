"""
The watcher: everything that happens to the objects of one resource, forever, in spite of the network.

It is a loop around the state machine, which knows what to do next: list or watch. The failures that pass by
themselves are waited out here with growing pauses: a watcher never dies of a broken network or an overloaded
server.

If it is asked for, and the server can do it (KEP-3157, Kubernetes 1.32 and newer), the listing is the beginning of the
stream: all objects come as if they were added, then a bookmark with a special annotation, and then the changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import math
from collections.abc import AsyncGenerator, Callable

import msgspec

from kopf._client.client_observer import WatchPhase
from kopf._client.errors import (
    APIClientError,
    APIForbiddenError,
    APIGoneError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APISilenceError,
    APITooManyRequestsError,
    make_error,
)
from kopf._client.http.api import APIClient
from kopf._client.resources.listing import EndlessListError, GarbageWarning, list_pages, take_item
from kopf._client.resources.setbacks import BrokenStreamError, Setbacks
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import State, WatchEvent, WatchMachine
from kopf._logging.log_levels import get_guiding_level
from kopf._settings.settings import OperatorSettings
from kopf._values import codec, malformed_json
from kopf._values.objects import KubeObject

logger = logging.getLogger(__name__)

SHORT_STREAM = 1.0
"""A stream that brings nothing and ends sooner than this, in seconds, is considered a failure."""


_INITIAL_END = "k8s.io/initial-events-end"
_INITIAL_TYPES = frozenset({"ADDED", "MODIFIED", "BOOKMARK"})


_TEMPORARY_ERRORS = (
    APINetworkError,
    APIServerError,
    APITooManyRequestsError,
    APIGoneError,
    BrokenStreamError,
    EndlessListError,
    msgspec.DecodeError,
    UnicodeDecodeError,
)


STEP = 5000
"""From how many objects on a listing is long, and after how many objects more it is mentioned again."""


class Line(msgspec.Struct, gc=False):
    """One event, as it arrived; the object is not decoded."""

    type: str
    object: msgspec.Raw


class _SplitLine(msgspec.Struct, gc=False):
    """The same, but instead of the object, there is a list of one number: its position in a list apart."""

    type: str
    object: tuple[int]


_decode_line = msgspec.json.Decoder(Line).decode
_decode_split_line = msgspec.json.Decoder(_SplitLine).decode


def parse_line(raw: bytes) -> Line:
    """
    Split the line to its type and object, even if the decoder cannot skip the object: it is too deep, or malformed.

    Raises :class:`msgspec.DecodeError` if it makes no sense.
    """
    try:
        return _decode_line(raw)
    except (RecursionError, msgspec.DecodeError):
        shallow, inner = malformed_json.split(raw, 1)
        split = _decode_split_line(shallow)
        return Line(split.type, msgspec.Raw(inner[split.object[0]]))


def make_line_error(body: bytes, *, path: str) -> Exception:
    """Make an error of an event about an error: instead of HTTP, there is only the ``Status`` object."""
    content = codec.decode_answer(body)
    code = content.get("code") if isinstance(content, dict) else None
    status = code if isinstance(code, int) and code >= 400 else 500
    error = make_error(status=status, method="WATCH", path=path, body=body)
    return error if isinstance(error, APIGoneError) else BrokenStreamError(str(error))


class ListingProgress:
    """Counts the objects of one listing; short listings are not mentioned."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0
        self._said = 0

    def add(self, count: int, remaining: int | None = None) -> None:
        """So many objects are taken in now; so many are to come, if that is known."""
        self._count += count
        is_long = self._count + (remaining or 0) >= STEP
        if remaining != 0 and is_long and (not self._said or self._count - self._said >= STEP):
            self._said = self._count
            total = "" if remaining is None else f" of {self._count + remaining:,}"
            self._say(f"{self._count:,}{total} objects by now")

    def finish(self) -> None:
        """Everything is listed."""
        if self._said:
            self._say(f"all {self._count:,} objects are there")

    def _say(self, text: str) -> None:
        logger.log(get_guiding_level(), "Listing of %r %s: %s.", self._target.resource, self._target.place, text)


class _Listing(enum.Enum):
    """How to list."""

    STREAMED = "as the beginning of the stream"
    PAGED = "page by page"
    WHOLE = "at once"


def watch_batches(
    api: APIClient,
    settings: OperatorSettings,
    target: Target,
    *,
    machine: WatchMachine | None = None,
    on_activity: Callable[[], None] = lambda: None,
) -> AsyncGenerator[list[WatchEvent], None]:
    """
    List and then watch the objects of the target, forever.

    The events come in batches, as many as have arrived at once; what they guarantee is said in the state
    machine. The next page of a listing or the next chunk of a stream is only read when the consumer asks for
    the next batch.

    With a ``machine``, what it already knows is not reported again, and what vanished meanwhile is: it remains with
    the caller, and so the watching can be interrupted and continued.

    ``on_activity`` is called whenever anything comes from the server, even if it makes no events (e.g. bookmarks).

    Network errors, HTTP 5xx & 429, expired versions, broken and silent streams are overcome here. Raises
    other :class:`APIError`, such as 403 or 404 (:class:`APIForbiddenError`, :class:`APINotFoundError`), and
    :class:`LoginError`: these do not pass by themselves.
    """
    machine = machine if machine is not None else WatchMachine(target.resource)
    return _Watcher(api, settings, target, machine, on_activity).run()


class _Watcher:
    """The loop of one watcher."""

    def __init__(
        self,
        api: APIClient,
        settings: OperatorSettings,
        target: Target,
        machine: WatchMachine,
        on_activity: Callable[[], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._target = target
        self._machine = machine
        self._on_activity = on_activity
        # Only listings tell if the shards are respected.
        can_stream = settings.watching.initial_streaming and "shardSelector" not in target.get_selectors(settings)
        self._listing = _Listing.STREAMED if can_stream else _Listing.PAGED
        self._setbacks = Setbacks(settings)
        self._on_garbage = GarbageWarning()

    @property
    def scope(self) -> str:
        """Where it watches, for humans."""
        return "cluster-wide" if self._target.scope is None else f"in {self._target.scope!r}"

    async def run(self) -> AsyncGenerator[list[WatchEvent], None]:
        """Do what the state machine needs, step by step."""
        logger.debug("Starting the watch-stream for %r %s.", self._target.resource, self.scope)
        try:
            while True:
                self._setbacks.begin()
                is_listing = self._machine.state is not State.WATCHING
                async with contextlib.aclosing(self._proceed(is_listing)) as batches:
                    try:
                        async for events in batches:
                            yield events
                        is_stream = not is_listing or self._listing is _Listing.STREAMED
                        delay = self._setbacks.accept_end() if is_stream else 0.0
                        if is_stream:
                            phase: WatchPhase = "listing" if is_listing else "watching"
                            self._api.observer.watch_interrupted(self._target, phase, None, delay)
                    except _TEMPORARY_ERRORS as exc:
                        delay = self._accept_failure(exc)
                if delay > 0:
                    await asyncio.sleep(delay)
        finally:
            logger.debug("Stopping the watch-stream for %r %s.", self._target.resource, self.scope)

    def _proceed(self, is_listing: bool) -> AsyncGenerator[list[WatchEvent], None]:
        if not is_listing:
            return self._watch()
        return self._list_by_stream() if self._listing is _Listing.STREAMED else self._list()

    async def _list_by_stream(self) -> AsyncGenerator[list[WatchEvent], None]:
        """List and go on watching. If the server cannot do it, the next step is to list in the usual way."""
        self._machine.begin_listing()
        batches = self._watch()
        try:
            async with contextlib.aclosing(batches):
                async for events in batches:
                    yield events
        except (APIClientError, BrokenStreamError) as exc:
            is_about_streaming = not isinstance(exc, APIForbiddenError | APINotFoundError | APITooManyRequestsError)
            if self._machine.state is State.WATCHING or not is_about_streaming:
                raise
            resource = self._target.resource
            logger.info("The objects of %r %s are listed by pages, not streamed: %s", resource, self.scope, exc)
            self._listing = _Listing.PAGED

    async def _list(self) -> AsyncGenerator[list[WatchEvent], None]:
        machine = self._machine
        machine.begin_listing()
        progress = ListingProgress(self._target)
        pages = list_pages(
            self._api,
            self._settings,
            self._target,
            paged=self._listing is _Listing.PAGED,
            on_garbage=self._on_garbage,
        )
        async with contextlib.aclosing(pages):
            async for page in pages:
                self._on_activity()
                events: list[WatchEvent] = []
                machine.take_page(page.objects, page.version, events)
                if events:
                    yield events
                progress.add(len(page.objects), page.remaining)
        events = []
        machine.finish_listing(events)
        progress.finish()
        self._listing = _Listing.PAGED
        self._setbacks.is_productive = True
        yield events

    async def _watch(self) -> AsyncGenerator[list[WatchEvent], None]:
        loop = asyncio.get_running_loop()
        opened: float | None = None
        stream = self._api.stream(self._target.path, params=self._get_watch_params())
        async with contextlib.aclosing(stream):
            try:
                async for lines in stream:
                    self._on_activity()
                    opened = loop.time() if opened is None else opened
                    events: list[WatchEvent] = []
                    try:
                        self._take_lines(lines, events)
                    except (APIGoneError, BrokenStreamError):
                        yield events
                        raise
                    if events:
                        yield events
            finally:
                is_long = opened is not None and loop.time() - opened >= SHORT_STREAM
                self._setbacks.is_productive |= is_long

    def _get_watch_params(self) -> dict[str, str]:
        params = self._target.get_selectors(self._settings)
        params |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._machine.version or "",
        }
        if self._machine.state is State.LISTING:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        if (timeout := self._setbacks.server_timeout) is not None:
            params["timeoutSeconds"] = str(math.ceil(timeout))
        return params

    def _take_lines(self, lines: list[bytes], events: list[WatchEvent]) -> None:
        """Decode the lines and advance the state machine, as far as the lines make sense."""
        machine = self._machine
        version = machine.version
        try:
            for raw in lines:
                line = parse_line(raw)
                if machine.state is State.LISTING and line.type in _INITIAL_TYPES:
                    self._take_initial(line, events)
                    continue
                match line.type:
                    case "ADDED" | "MODIFIED" | "DELETED":
                        if (obj := self._salvage(line)) is not None:
                            machine.take_object(line.type, obj, events)
                    case "BOOKMARK":
                        machine.take_bookmark(KubeObject.from_json(line.object).head.resourceVersion)
                    case "ERROR":
                        raise make_line_error(bytes(line.object), path=self._target.path)
                    case _:
                        resource = self._target.resource
                        logger.warning("An unknown event type %.100r is skipped for %r.", line.type, resource)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise BrokenStreamError(f"a line of {len(raw)} bytes cannot be decoded: {exc}") from exc
        finally:
            if machine.version != version:
                self._setbacks.note_progress()

    def _take_initial(self, line: Line, events: list[WatchEvent]) -> None:
        """Take what is there already, or the mark that this is all."""
        if line.type != "BOOKMARK":
            if (item := self._salvage(line)) is not None:
                self._machine.take_page([item], item.head.resourceVersion, events)
            return
        obj = KubeObject.from_json(line.object)
        version = obj.head.resourceVersion
        if (obj.head.annotations or {}).get(_INITIAL_END) == "true":
            self._machine.finish_listing(events, version)
        else:  # unknown parameters are ignored by older servers
            raise BrokenStreamError("the server does not know of initial events")

    def _salvage(self, line: Line) -> KubeObject | None:
        """Get the object of the line; it is skipped if it is unknown which object that is."""
        try:
            return take_item(self._target.resource, line.object)
        except msgspec.ValidationError as e:
            self._on_garbage(self._target.resource, str(e))
            return None

    def _accept_failure(self, error: Exception) -> float:
        """Get over a failure, decide what to do next. Give the pause in seconds."""
        is_listing = self._machine.state is not State.WATCHING
        delay = self._setbacks.accept_failure(error)
        is_quiet = not is_listing and isinstance(error, APISilenceError) and self._setbacks.accept_silence()
        phase: WatchPhase = "listing" if is_listing else "silence" if is_quiet else "watching"
        self._api.observer.watch_interrupted(self._target, phase, error, delay)
        level = logging.INFO if self._setbacks.is_productive or isinstance(error, APIGoneError) else logging.WARNING
        if is_quiet or (isinstance(error, APINetworkError) and error.is_told):
            level = logging.DEBUG
        logger.log(
            level,
            "%s of %r %s is interrupted and will continue in %g seconds: %s",
            "Listing" if is_listing else "Watching",
            self._target.resource,
            self.scope,
            delay,
            error,
        )
        if is_listing:
            # If listing by pages takes longer than their snapshot lives, only listing at once can succeed.
            if self._listing is _Listing.PAGED and isinstance(error, APIGoneError | EndlessListError):
                self._listing = _Listing.WHOLE
        elif self._setbacks.is_final(error):
            self._machine.expire()
        return delay
