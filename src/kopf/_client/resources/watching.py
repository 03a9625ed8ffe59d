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
import logging
import math
import random
from collections.abc import AsyncGenerator, Callable

import msgspec

from kopf._client.errors import (
    APIClientError,
    APIError,
    APIForbiddenError,
    APIGoneError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APITooManyRequestsError,
    make_error,
)
from kopf._client.http.api import APIClient
from kopf._client.http.retries import get_delay
from kopf._client.resources.listing import get_selectors, list_pages, warn_of_garbage
from kopf._client.resources.watch_machine import State, WatchEvent, WatchMachine
from kopf._settings.settings import OperatorSettings
from kopf._values import codec, nesting
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

MAX_BACKOFF = 30.0
"""The longest pause between attempts when they fail in a row, in seconds."""

MIN_BACKOFF = 0.1
"""The shortest pause after a failure, in seconds, even if the configured one is shorter."""

MAX_BROKEN_STREAMS = 3
"""How many streams in a row may break at the same version until everything is listed anew."""

SHORT_STREAM = 1.0
"""A stream that brings nothing and ends sooner than this, in seconds, is considered a failure."""


_INITIAL_END = "k8s.io/initial-events-end"
_INITIAL_TYPES = frozenset({"ADDED", "MODIFIED", "BOOKMARK"})


class BrokenStreamError(Exception):
    """The stream has something unusable, e.g. a garbled line or an error: it is to be reopened."""


_TEMPORARY_ERRORS = (
    APINetworkError,
    APIServerError,
    APITooManyRequestsError,
    APIGoneError,
    BrokenStreamError,
    msgspec.DecodeError,
)


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _SplitLine(msgspec.Struct, gc=False):
    """The same, but instead of the object, there is a list of one number: its position in a list apart."""

    type: str
    object: tuple[int]


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_split_line = msgspec.json.Decoder(_SplitLine).decode


def _parse_line(raw: bytes) -> _Line:
    """Split the line to its type and object, even if the decoder cannot skip the object, as it is too deep."""
    try:
        return _decode_line(raw)
    except RecursionError:
        shallow, inner = nesting.split(raw, 1)
        split = _decode_split_line(shallow)
        return _Line(split.type, msgspec.Raw(inner[split.object[0]]))


async def watch_batches(
    api: APIClient,
    settings: OperatorSettings,
    resource: Resource,
    namespace: str | None = None,
    *,
    machine: WatchMachine | None = None,
    on_activity: Callable[[], None] = lambda: None,
) -> AsyncGenerator[list[WatchEvent], None]:
    """
    List and then watch the objects of the resource in the namespace (in the whole cluster if ``None``),
    forever.

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
    machine = machine if machine is not None else WatchMachine(resource)
    watcher = _Watcher(api, settings, resource, namespace, machine, on_activity)
    logger.debug("Starting the watch-stream for %r %s.", resource, watcher.scope)
    try:
        async with contextlib.aclosing(watcher.run()) as batches:
            async for events in batches:
                yield events
    finally:
        logger.debug("Stopping the watch-stream for %r %s.", resource, watcher.scope)


class _Watcher:
    def __init__(
        self,
        api: APIClient,
        settings: OperatorSettings,
        resource: Resource,
        namespace: str | None,
        machine: WatchMachine,
        on_activity: Callable[[], None],
    ) -> None:
        self._api = api
        self._settings = settings
        self._resource = resource
        self._namespace = namespace
        self._machine = machine
        self._on_activity = on_activity
        self._is_paged = True
        # Only listings tell if the shards are respected.
        self._is_streamed = settings.watching.initial_streaming and not settings.watching.shard_selectors
        self._is_productive = False
        self._is_garbage_told = False
        self._failures = 0
        self._broken_streams = 0
        self._path = resource.get_url(namespace=namespace)
        self.scope = "cluster-wide" if namespace is None else f"in {namespace!r}"

    async def run(self) -> AsyncGenerator[list[WatchEvent], None]:
        """Do what the state machine needs, step by step."""
        while True:
            self._is_productive = False
            is_listing = self._machine.state is not State.WATCHING
            async with contextlib.aclosing(self._proceed(is_listing)) as batches:
                try:
                    async for events in batches:
                        yield events
                    delay = 0.0 if is_listing and not self._is_streamed else self._accept_end()
                except _TEMPORARY_ERRORS as exc:
                    delay = self._accept_failure(exc)
            if delay > 0:
                await asyncio.sleep(delay)

    def _proceed(self, is_listing: bool) -> AsyncGenerator[list[WatchEvent], None]:
        if not is_listing:
            return self._watch()
        return self._list_by_stream() if self._is_streamed else self._list()

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
            logger.info("The objects of %r %s are listed by pages, not streamed: %s", self._resource, self.scope, exc)
            self._is_streamed = False

    async def _list(self) -> AsyncGenerator[list[WatchEvent], None]:
        machine = self._machine
        machine.begin_listing()
        pages = list_pages(
            self._api,
            self._settings,
            self._resource,
            self._namespace,
            paged=self._is_paged,
            on_garbage=self._skip_garbage,
        )
        async with contextlib.aclosing(pages):
            async for page in pages:
                self._on_activity()
                events: list[WatchEvent] = []
                machine.take_page(page.objects, page.version, events)
                if events:
                    yield events
        events = []
        machine.finish_listing(events)
        self._is_paged = True
        self._is_productive = True
        yield events

    async def _watch(self) -> AsyncGenerator[list[WatchEvent], None]:
        loop = asyncio.get_running_loop()
        opened: float | None = None
        stream = self._api.stream(self._path, params=self._get_watch_params())
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
                self._is_productive = self._is_productive or is_long

    def _get_watch_params(self) -> dict[str, str]:
        params = get_selectors(self._settings, self._resource)
        params |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._machine.version or "",
        }
        if self._machine.state is State.LISTING:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        if self._settings.watching.server_timeout is not None:
            params["timeoutSeconds"] = str(math.ceil(self._settings.watching.server_timeout))
        return params

    def _take_lines(self, lines: list[bytes], events: list[WatchEvent]) -> None:
        """Decode the lines and advance the state machine, as far as the lines make sense."""
        machine = self._machine
        version = machine.version
        try:
            for raw in lines:
                line = _parse_line(raw)
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
                        raise self._make_error(bytes(line.object))
                    case _:
                        logger.warning("An unknown event type %r is skipped for %r.", line.type, self._resource)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise BrokenStreamError(f"a line of {len(raw)} bytes cannot be decoded: {exc}") from exc
        finally:
            if machine.version != version:
                self._is_productive = True
                self._broken_streams = 0

    def _take_initial(self, line: _Line, events: list[WatchEvent]) -> None:
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

    def _salvage(self, line: _Line) -> KubeObject | None:
        """Get the object of the line; it is skipped if it is unknown which object that is."""
        try:
            return KubeObject.salvage(line.object)
        except msgspec.ValidationError as e:
            self._skip_garbage(self._resource, str(e))
            return None

    def _skip_garbage(self, resource: Resource, problem: str) -> None:
        """Say it once: it comes again with every listing."""
        if not self._is_garbage_told:
            self._is_garbage_told = True
            warn_of_garbage(resource, problem)

    def _make_error(self, body: bytes) -> Exception:
        """Make an error of an event about an error: instead of HTTP, there is only the ``Status`` object."""
        content = codec.decode(body)
        code = content.get("code") if isinstance(content, dict) else None
        status = code if isinstance(code, int) else 500
        error = make_error(status=status, method="WATCH", path=self._path, body=body)
        return error if isinstance(error, APIGoneError) else BrokenStreamError(str(error))

    def _accept_end(self) -> float:
        """
        Get over the normal end of the stream, as servers do every several minutes. Give the pause in seconds.
        """
        if self._is_productive:
            self._failures = 0
            return self._settings.watching.reconnect_backoff
        self._failures += 1
        return self._get_backoff()

    def _accept_failure(self, error: Exception) -> float:
        """Get over a failure, decide what to do next. Give the pause in seconds."""
        is_listing = self._machine.state is not State.WATCHING
        self._failures = 0 if self._is_productive else self._failures + 1
        delay = self._get_backoff()
        if isinstance(error, APIError | APINetworkError):
            enforce = self._settings.networking.enforce_retry_after
            delay = get_delay(error, delay, enforce_retry_after=enforce) or delay
        level = logging.INFO if self._is_productive or isinstance(error, APIGoneError) else logging.WARNING
        action = "Listing" if is_listing else "Watching"
        logger.log(
            level,
            "%s of %r %s is interrupted and will continue in %g seconds: %s",
            action,
            self._resource,
            self.scope,
            delay,
            error,
        )
        if is_listing:
            # If listing by pages takes longer than their snapshot lives, only listing at once can succeed.
            self._is_paged = self._is_paged and not isinstance(error, APIGoneError)
        else:
            self._broken_streams += isinstance(error, BrokenStreamError)
            if isinstance(error, APIGoneError) or self._broken_streams >= MAX_BROKEN_STREAMS:
                self._broken_streams = 0
                self._machine.expire()
        return delay

    def _get_backoff(self) -> float:
        """Make the pauses longer with every failure in a row, and different for different watchers."""
        base = max(self._settings.watching.reconnect_backoff, MIN_BACKOFF)
        delay = min(base * 2.0 ** min(self._failures, 16), max(base, MAX_BACKOFF))
        return round(delay * random.uniform(0.9, 1.1), 3)
