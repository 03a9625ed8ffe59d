"""
The controller of one resource: from its watch stream, through the states of its objects and the queue, to handling.

It handles an object as soon as its event arrives, never with two workers at once. A worker is a task that exists only
while there is something to do for the object; a waiting object is a timer of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kopf._client.resources.watch_machine import LISTED, ForeignEvent, WatchEvent
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.selection import could_match
from kopf._controller.controller_registry import Place, Wakeup
from kopf._controller.observer import ControllerView, RunView
from kopf._controller.pausing import Covers
from kopf._controller.raw_events import RawEvents
from kopf._controller.reconciler import Reconciler
from kopf._controller.runtime import Runtime
from kopf._controller.tracked_objects import TrackedObject, TrackedObjects
from kopf._controller.work_queue import WorkQueue
from kopf._controller.workers import Workers, get_limit, has_room
from kopf._handlers.handlers import ReconcilingHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from kopf._values.slots import Slots, get_slot

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background
    from kopf._controller.owned_objects import Ownership

_DAEMONS_EXIT_TIMEOUT = 5.0
"""How long daemons may take to exit when the operator does, until they are cancelled, in seconds."""


class Controller:
    """
    Handles the objects of one resource.

    Each occurrence (an event, an alarm, an exit of a daemon, a result of a pass) changes the state of the object; then
    the queue is brought in line with the state: whether to work on the object now, later, or not at all.

    Large because it connects all parts that work on the objects.
    """

    def __init__(
        self, runtime: Runtime, resource: Resource, handlers: HandlersOfResource, *, is_successor: bool = False
    ) -> None:
        self._runtime, self._resource = runtime, resource
        self._observer, self._pause = runtime.observer, runtime.pause
        self.queue = WorkQueue[str](
            has_room=functools.partial(has_room, runtime),
            is_barred=self._is_barred,
            on_due=self._on_due,
            # Not in the contexts of the workers: they would be kept in memory for as long as the objects wait.
            call_at=functools.partial(asyncio.get_running_loop().call_at, context=runtime.context),
        )
        self.workers = Workers(runtime, resource, self.queue, self._work)
        self.background = _make_background(runtime, resource, self.enqueue) if handlers.spawning else None
        self.objects = TrackedObjects(runtime, handlers, self.background)
        self.scope = ReconciliationScope(
            runtime,
            resource,
            handlers,
            background=self.background,
            handled=self.objects.handled,
            user_code=self.workers.user_code,
        )
        self.scope.get_fresher = self.objects.get_pending
        self.raw_events = RawEvents(runtime, resource, handlers, self.workers)
        """Unlike states, raw events can pile up: their source must wait for room there."""
        self._reconciler = Reconciler(self.scope, self.objects, go_on=self.workers.go_on)
        self.children = _make_ownership(runtime, handlers) if handlers.owners else None
        """The objects with owners that react to their changes, if any handlers do so."""
        self._is_used = handlers.is_used
        self._work_ended = asyncio.Event()
        self._wakeable = frozenset(handler.id for handler in handlers.changing if handler.is_wakeable)
        self._inherited = self._wakeable if is_successor else ()
        """The handlers to call again, because their wake-ups are lost with the previous controller."""
        self._forgotten = [handler.id for handler in handlers.changing if isinstance(handler, ReconcilingHandler)]
        self._is_foreign = None if runtime.share.fence is None else runtime.share.is_foreign
        runtime.pause.on_partial.append(self._follow_holds)
        runtime.controllers.add(resource, self)
        self._view = ControllerView(
            resource=resource,
            handlers=handlers,
            queue=self.queue,
            count_unfinished=self.objects.count_busy,
            indices=runtime.indices,
            get_limit=functools.partial(get_limit, runtime),
            list_runs=functools.partial(_list_runs, self.background),
            controller=self,
        )
        runtime.observer.controller_started(self._view)

    @property
    def is_paused(self) -> bool:
        """Whether other operators have the priority now."""
        return self._pause.is_on

    def accept(self, events: Iterable[WatchEvent]) -> None:
        """Accept events, without blocking and without executing handlers."""
        now = asyncio.get_running_loop().time()
        for event in events:
            if event is not LISTED:
                self._accept(event, now)
        self.workers.wake()

    def _accept(self, event: WatchEvent, now: float) -> None:
        type_ = event.type
        if type_ == "DELETED" and event.object.pruned:
            event = type(event)("DELETED", event.object.make_stub())
        head = event.object.head
        key = head.key
        is_foreign = self._is_foreign is not None and (isinstance(event, ForeignEvent) or self._is_foreign(key))
        if not is_foreign:
            self._observer.object_seen(self._resource, key, type_, event.object)
        if self.children is not None:
            self.children.accept(event)
        if self._is_used:
            self._runtime.controllers.enqueue_users(Place(self._resource, head.namespace, head.name))
        if is_foreign:
            if type_ == "DELETED":
                self._runtime.memos.forget(key)  # it can be of the indexing
            return
        tracked = self.objects.accept(key, event, now)
        if self.raw_events.handlers and could_match(self.raw_events.handlers, head):
            tracked = tracked or self.objects.obtain(key)
            self.raw_events.put(tracked, event)
        if tracked is None:
            return
        if self._inherited and type_ == "ADDED":
            self.wake(key, self._inherited)
        if type_ == "DELETED" and tracked.events is None and not self.queue.is_active(key):
            self._forget(tracked)  # at once, as no worker has it
        self._requeue(key, urgent=type_ is not None)

    def _forget(self, tracked: TrackedObject | None) -> None:
        while tracked is not None and tracked.gone is not None:
            self._reconciler.log_gone(tracked.gone.obj)
            self._forget_wakeups(tracked.key)
            tracked = self.objects.forget(tracked, asyncio.get_running_loop().time())

    def _forget_wakeups(self, key: str) -> None:
        for handler in self._forgotten:
            self._runtime.controllers.forget(Wakeup(self._resource, key, handler))

    def _requeue(self, key: str, *, urgent: bool = True) -> None:
        """Bring the queue in line with the new state of the object."""
        tracked = self.objects.get(key)
        state = None if tracked is None else tracked.state
        alarm = None if state is None else state.alarm
        if alarm is not None or key in self.queue.planned:
            self.queue.set_alarm(key, alarm)
        if tracked is None:
            return
        if (state is None or not state.is_ready) and tracked.events is None and tracked.gone is None:
            self.objects.settle(tracked)
        elif self.queue.add(key, urgent=urgent):
            self._observer.object_queued(self._resource, key)

    def _on_due(self, key: str, when: float) -> None:
        tracked = self.objects.get(key)
        if tracked is not None and tracked.state is not None:
            tracked.state.on_time(when)
            self._requeue(key)
            self.workers.wake()

    def enqueue(self, obj: KubeObject) -> None:
        """
        Request a pass over the object in this or a later state: something that it depends on has changed or exited.
        """
        key = obj.head.key
        tracked = self.objects.obtain(key)
        if tracked.gone is None and not self.queue.is_closed:
            # Daemons and timers keep an older, readable state of an unreadable object.
            self.objects.wake(tracked).on_request(obj if tracked.stub is None else tracked.stub)
            self._requeue(key)
            self.workers.wake()

    def wake(self, key: str, handlers: Collection[HandlerId]) -> bool:
        """Request calls of these handlers, though the object has not changed; return whether it is known."""
        tracked = self.objects.get(key)
        if tracked is None or tracked.gone is not None or self.queue.is_closed:
            return False
        if tracked.memory.background is not None:
            tracked.memory.background.call_early(handlers)
        handlers = self._wakeable.intersection(handlers)
        latest = tracked.memory.latest
        if not handlers or latest is None:
            return False
        self.objects.wake(tracked).on_wake(latest.for_users() if tracked.stub is None else tracked.stub, handlers)
        self._requeue(key)
        self.workers.wake()
        return True

    def wake_all(self, handlers: Collection[HandlerId]) -> None:
        """Do so for all objects."""
        for tracked in self.objects:
            self.wake(tracked.key, handlers)

    def _is_barred(self, key: str) -> bool:
        """Tell if nothing may begin for the object; unsaved results must be saved nevertheless."""
        covers = self._pause.covers
        if covers is None or not covers(key):
            return False
        tracked = self.objects.get(key)
        return tracked is None or not tracked.is_unsaved

    def _follow_holds(self) -> None:
        """Bring everything in line with the objects that are held, because another replica handles them."""
        for tracked in self.objects:
            background = tracked.memory.background
            if background is not None and self._pause.is_held(tracked.key):
                background.stop_as_handed_over()
            elif background is not None and background.is_to_go_on:
                self.enqueue(background.body.object.for_users())
            self._requeue(tracked.key)
        self.workers.wake()

    async def _work(self, key: str) -> None:
        """Do one thing after another for the object, as long as there is something to do."""
        is_over = self.queue.is_held or self._is_barred(key)  # since the worker has got the key
        if is_over:
            self.queue.add(key)
        while not is_over:
            if (tracked := self.objects.get(key)) is not None:
                event = None if tracked.events is None else await self.raw_events.handle_next(tracked)
                if tracked.gone is not None:
                    if event is None or event.type == "DELETED":
                        self._forget(tracked)
                elif event is None and tracked.state is not None and tracked.state.is_ready:
                    await self._reconciler.reconcile(tracked, tracked.state)
            self._requeue(key)
            is_over = not self.queue.renew(key)
        if (tracked := self.objects.get(key)) is not None:
            self.objects.release(tracked)
        self._work_ended.set()

    def pause(self) -> None:
        """Start no handlers, and stop daemons and timers, without interrupting running handlers."""
        self.queue.hold()
        if self.background is not None:
            self.background.pause()

    def resume(self) -> None:
        """Go on with everything that was unfinished before the pause, or has come since then."""
        if self.queue.is_held and not self.queue.is_closed:
            self.queue.release()
            if self.background is not None:
                self.background.resume()
            self.workers.wake()

    async def leave(self, covers: Covers, timeout: float, *, is_urgent: bool) -> None:
        """
        Wait until nothing runs for the covered objects, which must be held; cancel what runs after so many seconds.

        Unless it is urgent, save the results, and let functions in threads go on, since they cannot be cancelled.
        """
        leaving = [] if self.background is None else [self.background.leave(covers, timeout, is_urgent=is_urgent)]
        ending = self.workers.leave(covers, timeout, is_saving=None) if is_urgent else self._end_work(covers, timeout)
        await asyncio.gather(ending, *leaving)

    async def _end_work(self, covers: Covers, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self.workers.settle(timeout, covers)
        unsaved = [tracked for tracked in self.objects if tracked.is_unsaved and covers(tracked.key)]
        unsaved = [] if self.queue.is_held else unsaved  # during a pause, other operators do it
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while unsaved := [tracked for tracked in unsaved if tracked.is_unsaved]:
                    self._work_ended.clear()
                    await self._work_ended.wait()
        await self.workers.leave(covers, max(0.0, deadline - loop.time()), is_saving=self._is_saving)

    def _is_saving(self, key: str) -> bool:
        tracked = self.objects.get(key)
        return tracked is not None and tracked.is_saving

    def list_running(self) -> list[str]:
        """List the keys of the objects for which anything runs."""
        return [*self.queue.active, *([] if self.background is None else self.background.list_running())]

    def hand_over(self, slots: Slots) -> None:
        """Forget those objects: they are of other replicas now."""
        for tracked in self.objects:
            if get_slot(tracked.key) in slots:
                self.queue.discard(tracked.key)
                self.raw_events.drop(tracked)
                self.objects.hand_over(tracked)
                self._forget_wakeups(tracked.key)
        self.scope.rivals.forget()

    async def stop(self) -> None:
        """Start nothing new, let running handlers finish in a reasonable time, then cancel them."""
        self.queue.close()
        self._runtime.controllers.discard(self._resource, self)
        self._pause.on_partial.remove(self._follow_holds)
        if self.background is not None:
            await self.background.stop(_DAEMONS_EXIT_TIMEOUT)
        await self.workers.stop(is_saving=self._is_saving)
        self._observer.controller_stopped(self._view)


def _list_runs(background: Background | None) -> Sequence[RunView]:
    objects = () if background is None else background.objects.copy()
    return [run for item in objects for run in item.runs.copy().values()]


def _make_ownership(runtime: Runtime, handlers: HandlersOfResource) -> Ownership:
    from kopf._controller.owned_objects import Ownership  # for most resources, no handler asks for owned objects

    return Ownership(runtime.controllers, handlers.owners, comparable_versions=runtime.comparable_versions)


def _make_background(runtime: Runtime, resource: Resource, on_exit: Callable[[KubeObject], None]) -> Background:
    from kopf._controller.background.spawning import Background  # most resources have neither daemons nor timers

    return Background(runtime, resource, on_exit)
