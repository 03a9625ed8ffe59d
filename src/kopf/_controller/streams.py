"""
Streams: the objects of one resource, from the API to their handling, namespace by namespace.

Interrupted streams (paused, denied, broken) remember the objects that they have seen. When they go on, everything is
listed again and compared, so that no change and no deletion is lost, and no object is new for the second time.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Container
from typing import TYPE_CHECKING

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIForbiddenError
from kopf._client.resources.targets import Scope, Shard, Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent, WatchMachine
from kopf._controller.controller import Controller
from kopf._controller.indexing_line import IndexingLine
from kopf._controller.informer import RETRYING_INTERVAL, Informer
from kopf._controller.pushed_selectors import find_common
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._handlers.registry import HandlersOfResource
from kopf._values.records import FrozenRecord, replace
from kopf._values.resources import Resource
from kopf._values.slots import Slots, get_slot

if TYPE_CHECKING:
    from kopf._controller.deselected_objects import DeselectedObjects

logger = logging.getLogger(__name__)

Clearance = Callable[[Scope], Awaitable[None]]
"""Waits until it is known that the scope can be served."""


class Service(FrozenRecord, frozen=True, kw_only=True):
    """The service of one resource: the common parts of all its streams."""

    runtime: Runtime
    resource: Resource
    handlers: HandlersOfResource
    controller: Controller
    line: IndexingLine
    """The line through which the events go to the controller."""
    group: asyncio.TaskGroup
    """The owner of the tasks."""
    known: set[int]
    """The slots of the objects that a former watcher with other handlers has served."""
    shard: Shard
    """The part of the objects that this replica handles. The server is asked once, for all streams."""
    clearance: Clearance


class ResourceWatcher:
    """
    Watches one resource in the served namespaces, or in the whole cluster, and handles its objects.

    Large because namespaces, pauses, and moves between replicas come and go at any time, and so do the streams.
    """

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: HandlersOfResource,
        group: asyncio.TaskGroup,
        *,
        known: Slots,
        clearance: Clearance,
    ) -> None:
        controller = Controller(runtime, resource, handlers, is_successor=bool(known))
        if runtime.share.fence is not None and handlers.is_seen_whole:
            text = "Each replica watches all objects of %r: they are indexed, or other objects depend on them."
            logger.info(text, resource)
        self._service = Service(
            runtime=runtime,
            resource=resource,
            handlers=handlers,
            controller=controller,
            line=IndexingLine(runtime, resource, handlers.indexing, controller.accept),
            group=group,
            known={*known},
            shard=Shard(runtime.share.make_selector),
            clearance=clearance,
        )
        self._streams: dict[Scope, Stream] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._awaited: set[Scope] = set()
        self._is_paused = False

    @property
    def controller(self) -> Controller:
        """The controller of the objects."""
        return self._service.controller

    @property
    def handlers(self) -> HandlersOfResource:
        """The handlers that are called for the objects."""
        return self._service.handlers

    def serve(self, scopes: Collection[Scope]) -> None:
        """Bring the streams in line with the namespaces that are served now."""
        for scope in sorted(self._streams.keys() - set(scopes), key=str):
            self._leave(scope)
        for scope in sorted(set(scopes) - self._streams.keys(), key=str):
            self._streams[scope] = Stream(self._service, scope, on_listed=self._accept_listed)
            if self._is_watching:
                self._streams[scope].start()

    @property
    def _is_watching(self) -> bool:
        """Whether there is anything to watch now."""
        is_needed = self.handlers.is_seen_whole or not self._service.runtime.share.is_empty
        return is_needed and not self._is_paused

    def _leave(self, scope: Scope) -> None:
        """Stop serving a namespace that is gone with everything in it."""
        stream = self._streams.pop(scope)
        closing = self._service.group.create_task(stream.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def retry(self) -> None:
        """Retry at once if the streams wait because the resource was denied or absent: something has changed."""
        for stream in self._streams.values():
            stream.retry()

    def pause(self) -> None:
        """Stop the handling and the streams, but remember everything."""
        self._is_paused = True
        self._awaited.clear()
        self._service.controller.pause()
        for stream in self._streams.values():
            stream.interrupt()

    def resume(self) -> None:
        """Go on: first list the changes since the pause, then handle them, and everything that was left unhandled."""
        self._is_paused = False
        self._awaited = set(self._streams) if self._is_watching else set()
        for stream in self._streams.values() if self._awaited else ():  # in the order of their namespaces
            stream.start()
        if not self._awaited:
            self._service.controller.resume()

    def _accept_listed(self, scope: Scope) -> None:
        """Accept that the namespace is listed, or cannot be listed."""
        self._service.runtime.index_readiness.done((self._service.resource, scope))
        if scope in self._awaited:
            self._awaited.discard(scope)
            if not self._awaited:
                self._service.controller.resume()

    @property
    def unlisted(self) -> Slots:
        """The slots taken over but not listed yet: their objects are unknown to the handlers."""
        return Slots().union(*(stream.unlisted for stream in self._streams.values()))

    def take_over(self, slots: Slots) -> None:
        """Handle the objects of these slots, too: list everything anew."""
        self._service.known.difference_update(slots)
        self._service.line.disown(slots)
        for stream in self._streams.values():
            stream.take_over(slots)
            if self._is_watching:
                stream.start()

    def hand_over(self, slots: Slots) -> None:
        """Forget the objects of these slots, which belong to other replicas now."""
        self._service.controller.hand_over(slots)
        for stream in self._streams.values():
            stream.hand_over(slots)
            if self._is_watching:
                stream.narrow()
            else:
                stream.interrupt()
        if self._awaited and not self._is_watching:
            self._awaited.clear()
            self._service.controller.resume()

    async def settle(self, timeout: float) -> None:
        """Start no handlers anymore, and wait until the running ones end, for so many seconds at most."""
        self._service.controller.pause()
        await self._service.controller.workers.settle(timeout)

    async def stop(self) -> None:
        """Stop the streams, then the handling."""
        for stream in self._streams.values():
            stream.interrupt()
        for stream in self._streams.values():
            await stream.wait()
        if self._closing:
            await asyncio.wait(self._closing)
        await self._service.line.stop()
        await self._service.controller.stop()

    def release(self) -> None:
        """Let nothing wait for the indexing of namespaces that are not served anymore."""
        for scope in self._streams:
            self._service.runtime.index_readiness.done((self._service.resource, scope))


class Stream:
    """
    One resource in one namespace, or in the whole cluster.

    Large because it takes part in everything that happens to the watcher.
    """

    def __init__(self, service: Service, scope: Scope, *, on_listed: Callable[[Scope], None]) -> None:
        self._service = service
        self._target = target = Target(service.resource, scope)
        self._on_listed = on_listed
        self._deselected: DeselectedObjects | None = None
        settings = service.runtime.settings
        pushed = find_common(service.handlers, service.resource, settings.watching)
        if pushed:
            logger.debug("For %r %s, the server selects only %s.", target.resource, target.place, pushed)
            from kopf._controller.deselected_objects import (
                DeselectedObjects,  # it looks at what the server does not select
            )

            self._deselected = DeselectedObjects(service.runtime, target, pushed)
            target = replace(target, selectors=pushed.add_to(target.get_selectors(settings)))
        share = service.runtime.share
        is_selected = (
            share.fence is not None
            and not service.handlers.is_seen_whole
            and service.resource.name not in settings.watching.shard_selectors
        )
        self._shard = service.shard if is_selected else None
        target = replace(target, shard=self._shard)
        self._machine = _make_machine(service)
        self._informer = Informer(
            service.runtime,
            target,
            explain=self._explain,
            on_obstacle=lambda is_absent: on_listed(scope),
            machine=self._machine,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()
        self._taking = asyncio.Lock()

    def start(self) -> None:
        """Start, or go on after an interruption."""
        group, resource = self._service.group, self._service.resource
        self._tasks.append(group.create_task(self._run(), name=f"watcher of {resource!r}"))
        if self._deselected is not None:
            name = f"watcher of the unselected {resource!r}"
            follow = functools.partial(self._follow, self._deselected)
            liveness = self._service.runtime.liveness
            following = keep_running(name, follow, fatal=(LoginError,), liveness=liveness, is_vital=False)
            self._tasks.append(group.create_task(following, name=name))

    async def _run(self) -> None:
        async with self._turn:  # the interrupted one can be still about to stop
            await self._service.clearance(self._target.scope)
            await self._informer.run(self._take)

    async def _follow(self, deselected: DeselectedObjects) -> None:
        """Follow the objects that the stream does not report."""
        while True:
            await deselected.wait()
            try:
                async with self._taking:
                    self._hand_over(await deselected.check())
            except APIForbiddenError as e:
                logger.debug("Cannot follow the unselected objects of %r: %s", self._service.resource, e)
                await asyncio.sleep(RETRYING_INTERVAL)

    def retry(self) -> None:
        """Retry at once if it waits because the resource was denied or absent: something has changed."""
        self._informer.retry()

    def interrupt(self) -> None:
        """Stop for now; everything is listed anew when it goes on."""
        self._cancel()
        self._machine.interrupt()

    def _cancel(self) -> None:
        """Stop for now. Do not keep the tasks: a cancelled task holds all of its objects in memory."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._tasks = []  # a new list marks the interruption

    @property
    def unlisted(self) -> Slots:
        """The slots taken over but not listed yet."""
        return self._machine.gained

    def take_over(self, slots: Slots) -> None:
        """Interrupt it; when it goes on, the objects of these slots are new."""
        self.interrupt()
        self._machine.gain(slots)
        self._informer.disown(slots)
        if self._deselected is not None:
            self._deselected.take_over(slots)

    def hand_over(self, slots: Slots) -> None:
        """Forget the objects of these slots."""
        self._machine.lose(slots)
        self._informer.disown(slots)

    def narrow(self) -> None:
        """If the server selects our objects, update the selector."""
        is_running = not all(task.done() for task in self._tasks)
        if is_running and self._shard is not None and self._shard.is_supported is not False:
            self._cancel()
            self._informer.keep_place()
            self.start()

    async def wait(self) -> None:
        """Wait until it has stopped."""
        async with self._turn, self._taking:
            pass

    async def close(self) -> None:
        """Stop forever, because the namespace is gone; report the deletion of the remaining objects."""
        self.interrupt()
        await self.wait()
        deselected = [] if self._deselected is None else self._deselected.drain()
        self._hand_over([*self._informer.drain(), *deselected])
        self._on_listed(self._target.scope)

    async def _take(self, events: list[WatchEvent]) -> None:
        raw_events = self._service.controller.raw_events
        await self._service.line.wait_for_room()
        if events and events[0].type is None:
            await self._service.controller.workers.catch_up()
        # Listings expire if they are not read soon.
        if raw_events.is_full and any(event.type is not None for event in events):
            await raw_events.wait_for_room()
        if self._deselected is None:
            self._hand_over(events)
        else:
            async with self._taking:
                self._hand_over(await self._deselected.settle(events))
        for event in events:
            if event is LISTED:
                self._service.line.call_when_indexed(functools.partial(self._report_listed, self._tasks))

    def _hand_over(self, events: list[WatchEvent]) -> None:
        known = self._service.known
        self._service.line.take(_as_known(events, known) if known else events)

    def _report_listed(self, tasks: list[asyncio.Task[None]]) -> None:
        if tasks is self._tasks:  # otherwise, it was interrupted, and lists everything again
            self._on_listed(self._target.scope)

    def _explain(self, verb: str, error: APIForbiddenError) -> None:
        resource, handlers = self._service.resource, self._service.handlers
        is_read_only = not (handlers.changing or handlers.spawning)
        verbs = ("list", "watch") if is_read_only else ("list", "watch", "patch")
        is_too_wide = self._target.scope is None and resource.namespaced
        logger.error(
            "Cannot watch %r %s: not permitted to %s it. %s The error: %s. %s%s",
            resource,
            self._target.place,
            verb,
            "It is not served." if verb == "list" else f"It is listed every {RETRYING_INTERVAL:g} seconds instead.",
            error,
            "Restrict the operator with --namespace, or permit it. " if is_too_wide else "",
            self._service.runtime.advise(verb, resource, verbs, namespace=self._target.scope),
        )


def _make_machine(service: Service) -> WatchMachine:
    """Make the memory of the objects, with the metadata that event handlers filter by: deletions need them."""
    handlers, share = service.handlers.watching, service.runtime.share
    return WatchMachine(
        service.resource,
        labels={key for handler in handlers for key in handler.labels or ()},
        annotations={key for handler in handlers for key in handler.annotations or ()},
        comparable_versions=service.runtime.comparable_versions,
        is_foreign=share.is_foreign if share.fence is not None and not service.handlers.is_seen_whole else None,
    )


def _as_known(events: list[WatchEvent], slots: Container[int]) -> list[WatchEvent]:
    """Do not resume the objects again that a former watcher has served, though a new one lists them anew."""
    return [
        event
        if event is LISTED or event.type or get_slot(event.object.head.key) not in slots
        else WatchEvent("ADDED", event.object)
        for event in events
    ]
