"""
The informer: everything that happens to the objects of one resource in one scope.

It lists and watches as long as the operator runs. Beyond the errors that the watcher survives, it also survives lasting
ones: if something is not permitted or does not exist, it logs this once, and tries again once a minute. It gives signs
of life, and restarts if it fails.

Guarantees to the consumer, besides the guarantees of the watcher's state machine: the batches come one by one; a batch
that was not consumed to its end (an error, an interruption) comes again, since the server will not send it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIForbiddenError, APINotFoundError
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, State, WatchEvent, WatchMachine, disown
from kopf._client.resources.watching import watch_batches
from kopf._controller.observer import WatchedStream
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._values.resources import Resource
from kopf._values.slots import Slots

logger = logging.getLogger(__name__)

RETRYING_INTERVAL = 60.0
"""How often to check if the target is permitted or exists by now, in seconds; this changes rarely."""

_ABSENCE = "absence"

Take = Callable[[list[WatchEvent]], Awaitable[None]]
"""Consumes the events, batch by batch."""


class Informer:
    """
    Lists and watches one target. It can be interrupted and run again; then it reports the changes meanwhile.

    ``explain`` gets the denied verb (``list`` or ``watch``) and the error: once, until it is permitted again. If only
    listing is permitted, it lists repeatedly. ``on_obstacle`` is called each time when the objects cannot be read; it
    gets true if the resource is absent, and false if it is denied. A ``machine`` is for consumers that need to remember
    more than the identities of the objects, or share the objects with other replicas.

    Large because it answers questions about all obstacles of watching.
    """

    def __init__(
        self,
        runtime: Runtime,
        target: Target,
        *,
        explain: Callable[[str, APIForbiddenError], None],
        on_obstacle: Callable[[bool], None] = lambda is_absent: None,
        machine: WatchMachine | None = None,
    ) -> None:
        self._runtime = runtime
        self._target = target
        self._explain = explain
        self._on_obstacle = on_obstacle
        if machine is None:
            machine = WatchMachine(target.resource, comparable_versions=runtime.comparable_versions)
        self._machine = machine
        self._untaken: list[WatchEvent] = []
        self._obstacles: set[str] = set()
        self._retrying = asyncio.Event()
        self._is_place_kept = False

    @property
    def resource(self) -> Resource:
        """The resource of the objects."""
        return self._target.resource

    def run(self, take: Take) -> Coroutine[Any, Any, None]:
        """Pass the events to the consumer forever, despite all errors. Raises :class:`LoginError`."""
        return keep_running(
            f"watcher of {self._target.resource!r}",
            lambda: self._run(take),
            fatal=(LoginError,),
            liveness=self._runtime.liveness,
            is_vital=False,
        )

    async def _run(self, take: Take) -> None:
        while True:
            try:
                await self._consume(take)
            except (APIForbiddenError, APINotFoundError) as e:
                self._accept_obstacle(e)
            self._retrying.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRYING_INTERVAL):
                    await self._retrying.wait()

    async def _consume(self, take: Take) -> None:
        if self._untaken:
            await self._pass_on(self._untaken, take)
        if not self._is_place_kept:
            self._machine.interrupt()
        self._is_place_kept = False
        name = f"{self._target.resource!r} {self._target.place}"
        with contextlib.ExitStack() as stack:
            heartbeat = stack.enter_context(self._runtime.liveness.watching(name))
            watched = WatchedStream(self._target, heartbeat, self._machine)
            self._runtime.observer.stream_opened(watched)
            stack.callback(self._runtime.observer.stream_closed, watched)
            batches = watch_batches(
                self._runtime.api,
                self._runtime.settings,
                self._target,
                machine=self._machine,
                on_activity=heartbeat.beat,
            )
            async with contextlib.aclosing(batches):
                async for events in batches:
                    self._accept_success(events)
                    await self._pass_on(events, take)

    async def _pass_on(self, events: list[WatchEvent], take: Take) -> None:
        self._untaken = events
        await take(events)
        self._untaken = []

    def _accept_obstacle(self, error: APIForbiddenError | APINotFoundError) -> None:
        obstacle = "watch" if self._machine.state is State.WATCHING else "list"
        if isinstance(error, APINotFoundError):
            obstacle = _ABSENCE
        is_new = obstacle not in self._obstacles
        self._obstacles.add(obstacle)
        if is_new and isinstance(error, APIForbiddenError):
            self._explain(obstacle, error)
        elif is_new:
            resource, place = self._target.resource, self._target.place
            logger.info("The resource %r is no longer served %s: %s", resource, place, error)
        self._on_obstacle(obstacle == _ABSENCE)

    def _accept_success(self, events: list[WatchEvent]) -> None:
        if self._obstacles:
            self._obstacles -= {_ABSENCE, "list" if self.is_listing(events) else "watch"}

    def is_listing(self, events: Collection[WatchEvent]) -> bool:
        """Tell if the events are from a listing, and not from a stream of changes."""
        return self._machine.state is not State.WATCHING or any(event is LISTED for event in events)

    def is_denied(self, verb: str) -> bool:
        """Tell if the last attempt to list or to watch was denied."""
        return verb in self._obstacles

    def retry(self) -> None:
        """Retry at once if it waits because the target was denied or absent: something has changed."""
        self._retrying.set()

    def keep_place(self) -> None:
        """Accept a short interruption: go on from the current place, without a new listing."""
        self._is_place_kept = True

    def disown(self, slots: Slots) -> None:
        """Mark unconsumed events of these slots: they came when other replicas handled the objects."""
        self._untaken = disown(self._untaken, slots)

    def drain(self) -> list[WatchEvent]:
        """Report the deletion of all objects, since the scope is not served anymore. Call it after the end."""
        self._machine.interrupt()
        events = self._untaken
        self._machine.begin_listing()
        self._machine.finish_listing(events)
        return [event for event in events if event is not LISTED]
