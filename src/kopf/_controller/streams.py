"""
Streams: the objects of one resource, from the API to their handling, namespace by namespace.

What the streams have seen is remembered when they are interrupted (paused, denied, broken): when they go on, everything
is listed again and compared, so that no change and no deletion is lost, and nothing is seen as new for the second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIClientError, APIForbiddenError, APINotFoundError
from kopf._client.resources.watch_machine import LISTED, State, WatchEvent, WatchMachine
from kopf._client.resources.watching import watch_batches
from kopf._controller.controller import Controller
from kopf._controller.denials import BACKOFF, Denials
from kopf._controller.indexing.feeding import feed_indices
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._handlers.registry import HandlersOfResource
from kopf._values.permissions import format_advice
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

Scope = str | None
"""A namespace, or the whole cluster."""


class ResourceWatcher:
    """Watches one resource in the served namespaces, or in the whole cluster, and handles its objects."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: HandlersOfResource,
        group: asyncio.TaskGroup,
        *,
        is_known: bool,
        clearance: Callable[[Scope], Awaitable[None]],
    ) -> None:
        self.handlers = handlers
        self._runtime = runtime
        self._resource = resource
        self._group = group
        self._is_known = is_known
        self._clearance = clearance
        self._controller = Controller(runtime, resource, handlers)
        self._streams: dict[Scope, Stream] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._awaited: set[Scope] = set()
        self._is_paused = False

    def serve(self, scopes: Collection[Scope]) -> None:
        """Bring the streams in line with the namespaces that are served now."""
        for scope in self._streams.keys() - set(scopes):
            self._leave(scope)
        for scope in set(scopes) - self._streams.keys():
            self._streams[scope] = self._make_stream(scope)
            if not self._is_paused:
                self._streams[scope].start()

    def _make_stream(self, scope: Scope) -> Stream:
        return Stream(
            self._runtime,
            self._resource,
            scope,
            self.handlers,
            self._controller,
            self._group,
            is_known=self._is_known,
            clearance=self._clearance,
            on_listed=self._accept_listed,
        )

    def _leave(self, scope: Scope) -> None:
        """Stop serving a namespace that is gone, together with everything in it."""
        stream = self._streams.pop(scope)
        closing = self._group.create_task(stream.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def retry(self) -> None:
        """If the streams wait because the resource was denied or absent, do not wait: something has changed."""
        for stream in self._streams.values():
            stream.retry()

    def pause(self) -> None:
        """Stop the handling and the streams, but remember everything."""
        self._is_paused = True
        self._awaited.clear()
        self._controller.pause()
        for stream in self._streams.values():
            stream.interrupt()

    def resume(self) -> None:
        """Go on: look at what has changed meanwhile, and only then handle that, and what was left unhandled."""
        self._is_paused = False
        self._awaited = set(self._streams)
        for stream in self._streams.values():
            stream.start()
        if not self._awaited:
            self._controller.resume()

    def _accept_listed(self, scope: Scope) -> None:
        """Everything is known of that namespace, or it is known that it cannot be."""
        self._runtime.gate.done((self._resource, scope))
        if scope in self._awaited:
            self._awaited.discard(scope)
            if not self._awaited:
                self._controller.resume()

    async def stop(self) -> None:
        """Stop the streams, then the handling."""
        for stream in self._streams.values():
            stream.interrupt()
        for stream in self._streams.values():
            await stream.wait()
        if self._closing:
            await asyncio.wait(self._closing)
        await self._controller.stop()

    def release(self) -> None:
        """Let nobody wait for the indexing of what is not served anymore."""
        for scope in self._streams:
            self._runtime.gate.done((self._resource, scope))


class Stream:
    """One resource in one namespace, or in the whole cluster."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        scope: Scope,
        handlers: HandlersOfResource,
        controller: Controller,
        group: asyncio.TaskGroup,
        *,
        is_known: bool,
        clearance: Callable[[Scope], Awaitable[None]],
        on_listed: Callable[[Scope], None],
    ) -> None:
        self._runtime = runtime
        self._resource = resource
        self._scope = scope
        self._handlers = handlers
        self._controller = controller
        self._group = group
        self._is_known = is_known
        self._clearance = clearance
        self._on_listed = on_listed
        self._machine = WatchMachine(
            resource,
            labels={key for handler in handlers.watching for key in handler.labels or ()},
            annotations={key for handler in handlers.watching for key in handler.annotations or ()},
        )
        self._denials = Denials(self._machine)
        self._is_absent = False
        self._untaken: list[WatchEvent] = []
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._retrying = asyncio.Event()

    def start(self) -> None:
        """Start, or go on after an interruption."""
        name = f"watcher of {self._resource!r}"
        self._task = self._group.create_task(self._run(name), name=name)

    async def _run(self, name: str) -> None:
        async with self._turn:  # the interrupted one can be still about to stop
            await self._clearance(self._scope)
            await keep_running(name, self._watch, fatal=(LoginError,), liveness=self._runtime.liveness)

    def retry(self) -> None:
        """If it waits because the resource was denied or absent, do not wait: something has changed."""
        self._retrying.set()

    def interrupt(self) -> None:
        """Stop for now. The task is not kept: a cancelled one remembers all that it had at hand, e.g. the objects."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def wait(self) -> None:
        """Wait until it has stopped."""
        async with self._turn:
            pass

    async def close(self) -> None:
        """Stop forever, as nothing of that exists anymore; those who are left of the objects are let go."""
        self.interrupt()
        await self.wait()
        self._relist()
        events: list[WatchEvent] = []
        self._machine.begin_listing()
        self._machine.finish_listing(events)
        await self._take([event for event in [*self._untaken, *events] if event is not LISTED])
        self._on_listed(self._scope)

    def _relist(self) -> None:
        if self._machine.state is State.WATCHING:
            self._machine.expire()

    async def _watch(self) -> None:
        while True:
            try:
                await self._consume()
            except APIForbiddenError as e:
                if (verb := self._denials.deny()) is not None:
                    self._explain_denial(verb, e)
                await self._wait_for_changes()
            except APINotFoundError as e:
                if not self._is_absent:
                    logger.info("The resource %r is not served %s anymore: %s", self._resource, self._place, e)
                self._is_absent = True
                self._relist()
                await self._wait_for_changes()

    async def _wait_for_changes(self) -> None:
        self._on_listed(self._scope)
        self._retrying.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._retrying.wait(), BACKOFF)

    async def _consume(self) -> None:
        if self._untaken:
            await self._take(self._untaken)
        self._relist()
        with self._runtime.liveness.watching(f"{self._resource!r} {self._place}") as heartbeat:
            batches = watch_batches(
                self._runtime.api,
                self._runtime.settings,
                self._resource,
                self._scope,
                machine=self._machine,
                on_activity=heartbeat.beat,
            )
            async with contextlib.aclosing(batches):
                async for events in batches:
                    self._denials.permit(events)
                    self._is_absent = False
                    await self._take(events)
                    if any(event.type is not None for event in events):  # listings expire if they are not taken soon
                        await self._controller.wait_for_room()

    async def _take(self, events: list[WatchEvent]) -> None:
        """Hand the events over. If it is interrupted, it is to be repeated, as they will not come again."""
        self._untaken = events
        if self._handlers.indexing:
            await feed_indices(self._runtime, self._resource, self._handlers.indexing, events)
        self._controller.accept(_as_known(events) if self._is_known else events)
        self._untaken = []
        if any(event is LISTED for event in events):
            self._on_listed(self._scope)

    @property
    def _place(self) -> str:
        return "in the whole cluster" if self._scope is None else f"in the namespace {self._scope!r}"

    def _explain_denial(self, verb: str, error: APIClientError) -> None:
        is_read_only = not (self._handlers.changing or self._handlers.spawning)
        verbs = ("list", "watch") if is_read_only else ("list", "watch", "patch")
        consequences = "It is not served." if verb == "list" else f"It is listed every {BACKOFF:g} seconds instead."
        is_too_wide = self._scope is None and self._resource.namespaced
        logger.error(
            "Cannot watch %r %s: not permitted to %s it. %s The error: %s. %s%s",
            self._resource, self._place, verb, consequences, error,
            "Restrict the operator with --namespace, or permit it. " if is_too_wide else "",
            format_advice(self._resource, verbs, namespace=self._scope),
        )


def _as_known(events: list[WatchEvent]) -> list[WatchEvent]:
    """A restarted watcher lists all objects anew, but they are not new to the operator: do not resume them again."""
    return [event if event is LISTED or event.type else WatchEvent("ADDED", event.object) for event in events]
