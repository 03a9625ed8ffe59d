"""
The controller of one resource: from its watch stream, through the states of its objects and the queue, to handling.

An object is handled as soon as its event arrives, never by two workers at once. A worker is a task that exists only
while there is something to do for the object; waiting is an entry in the timers of the event loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.handling import StateHandling
from kopf._controller.object_states import ObjectStates
from kopf._controller.observer import ControllerView, RunView
from kopf._controller.raw_events import RawEvents
from kopf._controller.reconciler import Reconciler
from kopf._controller.runtime import Runtime
from kopf._controller.troubles import Troubles
from kopf._controller.work_queue import WorkQueue
from kopf._controller.workers import Workers, get_limit, has_room
from kopf._handlers.registry import HandlersOfResource
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background

_DAEMONS_EXIT_TIMEOUT = 5.0
"""How long the daemons may take to exit when the operator does, in seconds, until they are cancelled."""


class Controller:
    """
    Handles the objects of one resource.

    What happens (an event, a time that has come, an exit of a daemon, a result of the handling) changes the state of
    the object, and the queue is brought in line with the state: whether to work on the object now, later, or not.

    Large because it has one of everything that works on the objects.
    """

    def __init__(self, runtime: Runtime, resource: Resource, handlers: HandlersOfResource) -> None:
        self.queue = WorkQueue[str](
            has_room=functools.partial(has_room, runtime),
            on_due=self._on_due,
            # Not in the contexts of the workers: they would be kept in memory for as long as the objects wait.
            call_at=functools.partial(asyncio.get_running_loop().call_at, context=runtime.context),
        )
        self.workers = Workers(runtime, resource, self.queue, self._work)
        self.background = _make_background(runtime, resource, self._revisit) if handlers.spawning else None
        self.states = ObjectStates(runtime, handlers, self.background)
        user_code = self.workers.user_code
        scope = ReconciliationScope(runtime, resource, handlers, background=self.background, user_code=user_code)
        self.scope = scope
        scope.get_fresher = self.states.get_pending
        self._reconciler = Reconciler(scope)
        self.raw_events = RawEvents(runtime, resource, handlers, self._reconciler.unreadable, user_code=user_code)
        """They can be too many, unlike the states: whoever passes the events in, is to wait for room there."""
        self._handling = StateHandling(scope, self._reconciler, Troubles(runtime, resource))
        self._view = ControllerView(
            resource=resource,
            handlers=handlers,
            queue=self.queue,
            unfinished=self.states,
            indices=runtime.indices,
            get_limit=functools.partial(get_limit, runtime),
            list_runs=functools.partial(_list_runs, self.background),
            controller=self,
        )
        runtime.observer.controller_started(self._view)

    def accept(self, events: Iterable[WatchEvent]) -> None:
        """Take the events in; it never blocks, and nothing is executed here."""
        now = asyncio.get_running_loop().time()
        for event in events:
            if event is not LISTED:
                self._accept(event, now)
        self.workers.wake()

    def _accept(self, event: WatchEvent, now: float) -> None:
        is_deleted = event.type == "DELETED"
        if is_deleted and event.object.pruned:
            event = WatchEvent("DELETED", event.object.make_stub())
        head = event.object.head
        key = head.key
        scope = self.scope
        scope.runtime.observer.object_seen(scope.resource, key, event.type, event.object)
        is_raw = self.raw_events.accept(key, event)
        is_of_interest = self.states.accept(key, event, now)
        if is_deleted and key not in self.raw_events.waiting and not self.queue.is_active(key):
            self._forget(key)  # at once, as nobody works on it
        if is_raw or is_of_interest:
            self._requeue(key, urgent=event.type is not None)

    def _forget(self, key: str) -> None:
        while key in self.states.gone:
            self._handling.forget(key, self.states.forget(key, asyncio.get_running_loop().time()))

    def _requeue(self, key: str, *, urgent: bool = True) -> None:
        """Something has happened to the object: bring the queue in line."""
        state = self.states.get(key)
        is_ready = state is not None and state.is_ready
        is_to_do = is_ready or key in self.raw_events.waiting or key in self.states.gone
        if is_to_do and self.queue.add(key, urgent=urgent):
            self.scope.runtime.observer.object_queued(self.scope.resource, key)
        alarm = None if state is None else state.alarm
        if alarm is not None or key in self.queue.planned:
            self.queue.set_alarm(key, alarm)
        if state is not None and not is_ready and state.is_idle:
            self.states.drop(key)  # keep nothing of what is idle

    def _on_due(self, key: str, when: float) -> None:
        state = self.states.get(key)
        if state is not None:
            state.on_time(when)
            self._requeue(key)
            self.workers.wake()

    def _revisit(self, obj: KubeObject) -> None:
        """Look at the object again: something that it has waited for (a daemon, a timer) has exited."""
        key = obj.head.key
        state = None if self.queue.is_closed else self.states.obtain(key)
        if state is not None:
            state.on_request(self._reconciler.unreadable.get_latest(obj))
            self._requeue(key)
            self.workers.wake()

    async def _work(self, key: str) -> None:
        """Do one thing after another for the object as long as there is something to do."""
        is_over = self.queue.is_held  # since the key was given to the worker, which begins only now
        if is_over:
            self.queue.add(key)
        while not is_over:
            event = await self.raw_events.handle_next(key) if key in self.raw_events.waiting else None
            if key in self.states.gone:
                if event is None or event.type == "DELETED":
                    self._forget(key)
            elif event is None and (state := self.states.get(key)) is not None and state.is_ready:
                await self._handling.handle(key, state)
            self._requeue(key)
            is_over = not self.queue.renew(key)
        self._handling.release_memory(key, self.states.get(key))

    def pause(self) -> None:
        """Start no handlers, and stop the daemons & timers; what is running, is not interrupted."""
        self.queue.hold()
        if self.background is not None:
            self.background.pause()

    def resume(self) -> None:
        """Go on with everything that was not finished before the pause, or has come since then."""
        if self.queue.is_held and not self.queue.is_closed:
            self.queue.release()
            if self.background is not None:
                self.background.resume()
            self.workers.wake()

    async def stop(self) -> None:
        """Let the current handlers finish in a reasonable time, start nothing new, and cancel what is left."""
        self.queue.close()
        if self.background is not None:
            await self.background.stop(_DAEMONS_EXIT_TIMEOUT)
        await self.workers.stop(is_saving=self._reconciler.is_saving)
        self.scope.runtime.observer.controller_stopped(self._view)


def _list_runs(background: Background | None) -> Sequence[RunView]:
    companions = () if background is None else background.companions.copy().values()
    return [run for companion in companions for run in companion.runs.copy().values()]


def _make_background(runtime: Runtime, resource: Resource, on_exit: Callable[[KubeObject], None]) -> Background:
    from kopf._controller.background.spawning import Background  # most resources have neither daemons nor timers

    return Background(runtime, resource, on_exit)
