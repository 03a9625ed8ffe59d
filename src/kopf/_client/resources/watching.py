"""
The watcher: reports everything that happens to the objects of one resource, forever, despite network failures.

It is a loop around the state machine, which knows the next step: to list or to watch. After temporary failures, the
watcher waits with growing pauses: it never dies of a broken network or an overloaded server.

With ``settings.watching.initial_streaming``, if the server supports it (KEP-3157, Kubernetes 1.32 and newer), the
listing is the beginning of the stream: all objects come as if they were added, then a bookmark with a special
annotation, and then the changes.
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
from kopf._client.resources.listing import EndlessListError, list_pages, take_item, warn_of_garbage
from kopf._client.resources.targets import Target, describe_scope
from kopf._client.resources.watch_failures import BrokenStreamError, WatchFailures
from kopf._client.resources.watch_machine import State, WatchEvent, WatchMachine
from kopf._logging.log_levels import get_guiding_level
from kopf._settings.settings import OperatorSettings
from kopf._values import codec, malformed_json
from kopf._values.objects import KubeObject

logger = logging.getLogger(__name__)

SHORT_STREAM = 1.0
"""A stream that brings nothing and ends sooner than this, in seconds, is a failure."""


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
"""A listing of so many objects is long, and is mentioned again after so many more objects."""


class Line(msgspec.Struct, gc=False):
    """One event as it arrived, with its object not decoded."""

    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(Line).decode


def parse_line(raw: bytes) -> Line:
    """
    Split the line into its type and object, even if the decoder cannot skip the object, as it is malformed or too deep.

    Raises :class:`msgspec.DecodeError` if that is impossible.
    """
    try:
        return _decode_line(raw)
    except (RecursionError, msgspec.DecodeError):
        shallow, inner = malformed_json.split(raw, 1)
        line = _decode_line(shallow)
        return Line(line.type, msgspec.Raw(malformed_json.restore(bytes(line.object), inner)))


def make_line_error(body: bytes, *, path: str) -> Exception:
    """Turn an error event into an exception: instead of an HTTP response, there is only the ``Status`` object."""
    content = codec.decode_answer(body)
    code = content.get("code") if isinstance(content, dict) else None
    status = code if isinstance(code, int) and code >= 400 else 500
    error = make_error(status=status, method="WATCH", path=path, body=body)
    return error if isinstance(error, APIGoneError) else BrokenStreamError(str(error))


class ListingProgress:
    """Counts the objects of one listing, and logs the progress of long ones."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0
        self._said = 0

    def add(self, count: int, remaining: int | None = None) -> None:
        """Count new objects; ``remaining`` ones are still to come, if that is known."""
        self._count += count
        is_long = self._count + (remaining or 0) >= STEP
        if remaining != 0 and is_long and (not self._said or self._count - self._said >= STEP):
            self._said = self._count
            total = "" if remaining is None else f" of {self._count + remaining:,}"
            self._say(f"{self._count:,}{total} objects by now")

    def finish(self) -> None:
        """Note the end of the listing."""
        if self._said:
            self._say(f"all {self._count:,} objects are there")

    def _say(self, text: str) -> None:
        logger.log(get_guiding_level(), "Listing of %r %s: %s.", self._target.resource, self._target.place, text)


class _Listing(enum.Enum):
    """The ways to list."""

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

    The events come in batches, as many as have arrived at once. For their guarantees, see the state machine. The next
    page of a listing or the next chunk of a stream is read only when the consumer asks for the next batch.

    With a ``machine``, its known objects are not reported again, unless they have vanished meanwhile. The caller keeps
    the machine, and so can interrupt the watching and continue it later.

    ``on_activity`` is called whenever anything comes from the server, even without events (e.g. bookmarks).

    The watcher overcomes network errors, HTTP 5xx and 429, expired versions, broken and silent streams. Raises
    :class:`LoginError` and other errors of the class :class:`APIError`, such as :class:`APIForbiddenError` (403) and
    :class:`APINotFoundError` (404): these do not pass by themselves.
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
        self._scope = describe_scope(target.scope)
        self._machine = machine
        self._on_activity = on_activity
        # Only listings tell if the server respects shards.
        can_stream = settings.watching.initial_streaming and "shardSelector" not in target.get_selectors(settings)
        self._listing = _Listing.STREAMED if can_stream else _Listing.PAGED
        self._failures = WatchFailures(settings)

    async def run(self) -> AsyncGenerator[list[WatchEvent], None]:
        """Do the next steps of the state machine, forever."""
        logger.debug("Starting the watch-stream for %r %s.", self._target.resource, self._scope)
        try:
            while True:
                self._failures.begin()
                is_listing = self._machine.state is not State.WATCHING
                async with contextlib.aclosing(self._proceed(is_listing)) as batches:
                    try:
                        async for events in batches:
                            yield events
                        is_stream = not is_listing or self._listing is _Listing.STREAMED
                        delay = self._failures.accept_end() if is_stream else 0.0
                        if is_stream:
                            phase: WatchPhase = "listing" if is_listing else "watching"
                            self._api.observer.watch_interrupted(self._target, phase, None, delay)
                    except _TEMPORARY_ERRORS as exc:
                        delay = self._accept_failure(exc)
                if delay > 0:
                    await asyncio.sleep(delay)
        finally:
            logger.debug("Stopping the watch-stream for %r %s.", self._target.resource, self._scope)

    def _proceed(self, is_listing: bool) -> AsyncGenerator[list[WatchEvent], None]:
        if not is_listing:
            return self._watch()
        return self._list_by_stream() if self._listing is _Listing.STREAMED else self._list()

    async def _list_by_stream(self) -> AsyncGenerator[list[WatchEvent], None]:
        """List and continue with watching. If the server cannot do it, the next step lists by pages."""
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
            logger.info("The objects of %r %s are listed by pages, not streamed: %s", resource, self._scope, exc)
            self._listing = _Listing.PAGED

    async def _list(self) -> AsyncGenerator[list[WatchEvent], None]:
        machine = self._machine
        machine.begin_listing()
        progress = ListingProgress(self._target)
        pages = list_pages(self._api, self._settings, self._target, paged=self._listing is _Listing.PAGED)
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
        self._failures.is_productive = True
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
                self._failures.is_productive |= is_long

    def _get_watch_params(self) -> dict[str, str]:
        params = self._target.get_selectors(self._settings)
        params |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._machine.version or "",
        }
        if self._machine.state is State.LISTING:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        if (timeout := self._failures.server_timeout) is not None:
            params["timeoutSeconds"] = str(math.ceil(timeout))
        return params

    def _take_lines(self, lines: list[bytes], events: list[WatchEvent]) -> None:
        """Decode the lines and advance the state machine, up to the first broken line."""
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
                self._failures.note_progress()

    def _take_initial(self, line: Line, events: list[WatchEvent]) -> None:
        """Take an existing object, or the mark after the last one."""
        if line.type != "BOOKMARK":
            if (item := self._salvage(line)) is not None:
                self._machine.take_page([item], item.head.resourceVersion, events)
            return
        obj = KubeObject.from_json(line.object)
        version = obj.head.resourceVersion
        if (obj.head.annotations or {}).get(_INITIAL_END) == "true":
            self._machine.finish_listing(events, version)
        else:  # older servers ignore unknown parameters
            raise BrokenStreamError("the server does not know of initial events")

    def _salvage(self, line: Line) -> KubeObject | None:
        """Get the object of the line; ``None`` if it is unknown which object it is."""
        try:
            return take_item(self._target.resource, line.object)
        except msgspec.ValidationError as e:
            warn_of_garbage(self._api, self._target.resource, str(e))
            return None

    def _accept_failure(self, error: Exception) -> float:
        """Accept a failure and decide on the next step. Return the pause, in seconds."""
        is_listing = self._machine.state is not State.WATCHING
        delay = self._failures.accept_failure(error)
        is_quiet = not is_listing and isinstance(error, APISilenceError) and self._failures.accept_silence()
        phase: WatchPhase = "listing" if is_listing else "silence" if is_quiet else "watching"
        self._api.observer.watch_interrupted(self._target, phase, error, delay)
        level = logging.INFO if self._failures.is_productive or isinstance(error, APIGoneError) else logging.WARNING
        if is_quiet or (isinstance(error, APINetworkError) and error.is_told):
            level = logging.DEBUG
        logger.log(
            level,
            "%s of %r %s is interrupted and will continue in %g seconds: %s",
            "Listing" if is_listing else "Watching",
            self._target.resource,
            self._scope,
            delay,
            error,
        )
        if is_listing:
            # If a listing by pages outlasts its snapshot, only a listing at once can succeed.
            if self._listing is _Listing.PAGED and isinstance(error, APIGoneError | EndlessListError):
                self._listing = _Listing.WHOLE
        elif self._failures.demands_listing(error):
            self._machine.expire()
        return delay
