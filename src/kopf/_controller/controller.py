"""
Dispatching: from the watch stream of one resource to the mailboxes of its objects, and to the workers.

An object is handled as soon as its event arrives, never by two workers at once. A worker is a task that exists only
while there is something to do for the object; waiting is an entry in the timers of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from kopf._client.resources.patching import PatchConflict
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.background.spawning import Background
from kopf._controller.background.stopping import DaemonStoppingReason
from kopf._controller.background.sync import sync
from kopf._controller.changes.reconciliation import Reconciliation, Scope
from kopf._controller.changes.saving import Carried, SavingFailure, Step
from kopf._controller.changes.selection import could_match
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.object_state import ObjectState, is_overtaking
from kopf._controller.raw_events import handle_raw_event
from kopf._controller.runtime import Runtime
from kopf._controller.troubles import API_ERRORS, Troubles
from kopf._controller.unreadable import UnreadableObjects
from kopf._handlers.registry import HandlersOfResource
from kopf._logging.loggers import ObjectLogger
from kopf._values.codec import NestingError
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_SOFT_LIMIT = 50
"""How many objects are handled at once if there is no limit in the settings, not counting those in the users' code."""


_ENOUGH_EVENTS = 10_000
"""
How many raw events can wait for their handlers until no more of them are taken in. Every event counts, so they cannot
be replaced by newer ones; but they must not fill the memory either, e.g. when a handler hangs.
"""

_ENOUGH_BYTES = 64 * 1024 * 1024
"""The same in bytes of JSON: large objects are up to 3 MiB each."""

_DAEMONS_EXIT_TIMEOUT = 5.0
"""How long the daemons may take to exit when the operator does, in seconds, until they are cancelled."""

_SAVING_EXIT_TIMEOUT = 5.0
"""How long it may take to save what the handlers have done when the operator exits, in seconds."""


class Controller:
    """Handles the objects of one resource."""

    def __init__(self, runtime: Runtime, resource: Resource, handlers: HandlersOfResource) -> None:
        self._runtime = runtime
        self._resource = resource
        self._handlers = handlers
        self._finalizer = runtime.settings.persistence.finalizer
        self._mailboxes: dict[str, ObjectState] = {}
        self._news: deque[ObjectState] = deque()
        self._backlog: deque[ObjectState] = deque()
        self._tasks: dict[asyncio.Task[None], ObjectState] = {}
        self._occupied = 0
        self._waiting_events = 0
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._is_stopping = False
        self._is_paused = False
        self._is_waiting_for_gate = False
        self._handled = HandledMemory()
        self._troubles = Troubles(runtime, resource)
        self._unreadable = UnreadableObjects(runtime, resource)
        self._background = Background(runtime, resource, on_exit=self._revisit) if handlers.spawning else None
        self._scope = Scope(
            runtime,
            resource,
            handlers,
            background=self._background,
            handled=self._handled,
            user_code=self._in_user_code,
        )
        self._is_stateful = bool(handlers.changing or handlers.spawning)
        runtime.executor.threads.usage.subscribe(self._start_workers)

    def accept(self, events: Iterable[WatchEvent]) -> None:
        """Take the events in; it never blocks, and nothing is executed here."""
        for event in events:
            if event is not LISTED:
                self._accept(event)
        self._start_workers()

    async def wait_for_room(self) -> None:
        """Wait as long as there are too many raw events that are not handled yet."""
        is_much = self._waiting_events >= _ENOUGH_EVENTS or self._waiting_bytes >= _ENOUGH_BYTES
        if not is_much or not self._runtime.gate.is_open:
            return
        ids = ", ".join(sorted(handler.id for handler in self._handlers.watching))
        logger.warning(
            "%d events (%d MiB) of %r wait for their handlers (%s), which are too slow or hang. Until they catch up, "
            "nothing is taken in from the watch-stream.",
            self._waiting_events,
            self._waiting_bytes // 2**20,
            self._resource,
            ids,
        )
        self._room.clear()
        await self._room.wait()

    def _keep_for_later(self, mailbox: ObjectState, event: WatchEvent) -> None:
        """
        The object is gone, but not said goodbye to yet, and there it is again: it is back in the selected ones, or it
        is another object of the same name, if they have no uids.
        """
        if mailbox.afterlife is None or not self._handlers.watching:  # of the states, only the latest one counts
            mailbox.afterlife = []
        mailbox.afterlife.append(event)
        if self._handlers.watching:
            self._count_waiting(event, 1)

    def _take_afterlife(self, mailbox: ObjectState) -> None:
        events, mailbox.afterlife = mailbox.afterlife or [], None
        for event in events if self._handlers.watching else ():
            self._count_waiting(event, -1)
        self.accept(events)

    def _count_waiting(self, event: WatchEvent, change: int) -> None:
        self._waiting_events += change
        self._waiting_bytes += change * event.object.size
        if self._waiting_events <= _ENOUGH_EVENTS // 2 and self._waiting_bytes <= _ENOUGH_BYTES // 2:
            self._room.set()

    def _accept(self, event: WatchEvent) -> None:
        if event.object.pruned and event.type == "DELETED":
            event = WatchEvent("DELETED", event.object.make_stub())
        obj = event.object
        meta = obj.head
        mailbox = self._mailboxes.get(meta.key)
        if mailbox is not None and mailbox.gone:
            self._keep_for_later(mailbox, event)
            return
        is_news = mailbox is None or event.type == "DELETED" or mailbox.writes.is_news(meta.resourceVersion)
        if self._background is not None:
            if event.type == "DELETED":
                self._background.forget(meta.key)
            elif is_news and not obj.pruned:
                self._background.refresh(obj)
        if mailbox is None:
            if event.type == "DELETED" and not could_match(self._handlers.watching, meta):
                self._forget(obj)
                return
            if not self._is_interesting(meta):
                return
            mailbox = ObjectState(meta.key, comparable_versions=self._runtime.comparable_versions)
            self._mailboxes[meta.key] = mailbox
        if self._handlers.watching:
            mailbox.raw_events.append(event)
            self._count_waiting(event, 1)
        if event.type == "DELETED":
            mailbox.gone = True
            mailbox.known = obj
            mailbox.stop_timer()
            mailbox.stop_suspecting()
        elif self._is_stateful or self._finalizer in (meta.finalizers or ()):
            if event.type is None:
                mailbox.initial = True
            if is_news:
                mailbox.deliver(obj)
            elif mailbox.writes.expecting:
                self._suspect(mailbox, obj)
            else:
                mailbox.stop_suspecting()  # the echo has come: all before it was really old
        self._enqueue(mailbox, self._backlog if event.type is None else self._news)

    def _is_interesting(self, meta: ObjectMeta) -> bool:
        """Tell if an idle object needs a mailbox: is any handler for it, or was any and has left its traces."""
        return (
            could_match(self._handlers.watching, meta)
            or could_match(self._handlers.changing, meta)
            or could_match(self._handlers.spawning, meta)
            or self._finalizer in (meta.finalizers or ())
            or (self._background is not None and self._background.is_running(meta.key))
        )

    def _suspect(self, mailbox: ObjectState, obj: KubeObject) -> None:
        """Keep a state that is probably older than our own write, in case that the write never comes back."""
        if not self._runtime.comparable_versions:
            mailbox.suspect = obj
            if mailbox.suspicion is None:
                timeout = self._runtime.settings.persistence.consistency_timeout
                mailbox.suspicion = asyncio.get_running_loop().call_later(timeout, self._trust, mailbox)

    def _trust(self, mailbox: ObjectState) -> None:
        """The echo of our write did not come in time: the last seen state is presumed to be the actual one."""
        mailbox.suspicion = None
        if mailbox.suspect is not None:
            mailbox.writes.give_up()
            mailbox.deliver(mailbox.suspect)
            self._enqueue(mailbox, self._news)
            self._start_workers()

    def _enqueue(self, mailbox: ObjectState, queue: deque[ObjectState]) -> None:
        has_work = mailbox.raw_events or mailbox.gone or (mailbox.state is not None and mailbox.timer is None)
        if has_work and not mailbox.active:
            mailbox.active = True
            queue.append(mailbox)
        elif mailbox.is_idle:
            self._mailboxes.pop(mailbox.key, None)

    def _start_workers(self) -> None:
        """Start as many workers as allowed: for the news first, for the initial listing then."""
        limit = self._runtime.settings.queueing.worker_limit
        if limit is None:
            limit = _SOFT_LIMIT + self._runtime.executor.threads.extra_slots
        if self._is_paused:
            return
        if not self._runtime.gate.is_open:
            if not self._is_waiting_for_gate:
                self._is_waiting_for_gate = True
                self._runtime.gate.call_when_open(self._pass_the_gate)
            return
        while not self._is_stopping and self._occupied < limit and (self._news or self._backlog):
            mailbox = (self._news or self._backlog).popleft()
            self._occupied += 1
            name, context = f"worker of {self._resource!r}", self._runtime.context.copy()
            task = asyncio.create_task(self._work(mailbox), name=name, context=context)
            self._tasks[task] = mailbox
            task.add_done_callback(self._bury)

    def _pass_the_gate(self) -> None:
        self._is_waiting_for_gate = False
        self._start_workers()

    def _bury(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.critical("The %s has failed; this is a bug of the framework.", task.get_name(), exc_info=exc)

    @contextlib.contextmanager
    def _in_user_code(self) -> Iterator[None]:
        """Let others work while a coroutine of a user waits for something, unless the limit is set explicitly."""
        if self._runtime.settings.queueing.worker_limit is not None:
            yield
            return
        self._occupied -= 1
        self._start_workers()
        try:
            yield
        finally:
            self._occupied += 1

    async def _work(self, mailbox: ObjectState) -> None:
        """Handle the object as long as there is something new for it."""
        try:
            while not self._is_stopping and not self._is_paused:
                if mailbox.raw_events:
                    event = mailbox.raw_events.popleft()
                    self._count_waiting(event, -1)
                    await self._handle_raw_event(mailbox, event)
                elif mailbox.gone and mailbox.known is not None:
                    self._mailboxes.pop(mailbox.key, None)
                    self._forget(mailbox.known)
                    self._take_afterlife(mailbox)
                    return
                elif mailbox.state is not None and mailbox.timer is None:
                    await self._handle_state(mailbox, mailbox.state)
                else:
                    return
        finally:
            mailbox.active = False
            self._occupied -= 1
            self._relax(mailbox)
            if mailbox.is_idle and not mailbox.gone:  # if gone, it is either out already, or to be said goodbye later
                self._mailboxes.pop(mailbox.key, None)
            self._start_workers()

    def _relax(self, mailbox: ObjectState) -> None:
        """The object is idle, or waits for something: it may be for long, and there may be many such objects."""
        self._runtime.memos.relax(mailbox.key)
        if mailbox.known is not None:
            mailbox.known.forget_values()
        if self._background is not None:
            self._background.relax(mailbox.key)

    def _forget(self, obj: KubeObject) -> None:
        self._handled.forget(obj.head.key)
        self._unreadable.forget(obj.head.key)
        object_logger = ObjectLogger(body=obj, settings=self._runtime.settings)
        if object_logger.isEnabledFor(logging.DEBUG) and could_match(self._handlers.changing, obj.head):
            cycle = Reconciliation(self._scope, obj, Carried())
            try:
                cycle.log_gone()
            except Exception:  # of the filters
                object_logger.exception("The deletion could not be handled.")
        self._runtime.memos.forget(obj.head.key)

    async def _handle_raw_event(self, mailbox: ObjectState, event: WatchEvent) -> None:
        def get_latest() -> KubeObject:
            return mailbox.raw_events[-1].object if mailbox.raw_events else event.object

        if event.object.pruned:
            self._unreadable.report(event.object)
            return
        try:
            await handle_raw_event(
                self._runtime,
                self._resource,
                self._handlers,
                event,
                get_latest=get_latest,
                user_code=self._in_user_code,
            )
        except NestingError:
            self._unreadable.report(event.object)
        except Exception as e:
            # The next events are of the same value for the handlers, so there is no sense in delaying them.
            is_api_error = isinstance(e, API_ERRORS)
            object_logger = ObjectLogger(body=event.object, settings=self._runtime.settings)
            text = "The event could not be handled, and is skipped: %s"
            object_logger.error(text, str(e) or type(e).__name__, exc_info=None if is_api_error else e)

    async def _handle_state(self, mailbox: ObjectState, obj: KubeObject) -> None:
        mailbox.state = None
        mailbox.revisited = False
        mailbox.known = obj
        mailbox.writes.start()
        mailbox.handling = True
        try:
            step = await self._look_at(mailbox, obj)
        except SavingFailure as e:
            if e.obj is not obj:
                self._follow_own_write(mailbox, obj, e.obj)
            self._postpone(mailbox, e.obj, e.__cause__ or e)
        except Exception as e:
            self._postpone(mailbox, obj, e)
        else:
            self._continue(mailbox, obj, step)
        finally:
            mailbox.handling = False

    async def _look_at(self, mailbox: ObjectState, obj: KubeObject) -> Step:
        background, handled = self._background, self._handled
        if not obj.pruned:
            self._unreadable.forget(mailbox.key)
            with contextlib.suppress(NestingError):
                if background is None or self._handlers.changing:
                    return await self._run_cycle(mailbox, obj)
                return await sync(self._scope, obj, errors=mailbox.errors)
        return await self._unreadable.set_aside(obj, background=background, handled=handled)

    async def _run_cycle(self, mailbox: ObjectState, obj: KubeObject) -> Step:
        if mailbox.initial and mailbox.called is None:
            mailbox.called = set()
        carried = Carried(
            mailbox.initial, mailbox.unsaved, mailbox.progress, mailbox.called, mailbox.baseline, mailbox.errors
        )
        cycle = mailbox.cycle = Reconciliation(self._scope, obj, carried)
        mailbox.progress = None
        try:
            step = await cycle.run()
        except Exception:
            mailbox.unsaved = cycle.collect_unsaved()
            mailbox.baseline = cycle.baseline
            raise
        else:
            mailbox.unsaved = cycle.correction
            mailbox.baseline = None if step.resumed else cycle.baseline
            return step
        finally:
            mailbox.cycle = None

    def _continue(self, mailbox: ObjectState, obj: KubeObject, step: Step) -> None:
        """Decide what is next for the object after a successful cycle."""
        if step.error is None:
            mailbox.errors = mailbox.conflicts = 0
            mailbox.last_error = None
        if step.resumed and step.error is None:
            mailbox.initial, mailbox.called = False, None
        if step.obj is None:
            mailbox.state = None  # whatever it is, it is older; the stream will tell that the object is gone
            return
        if step.changed:
            self._follow_own_write(mailbox, obj, step.obj)
        if mailbox.state is not None:
            return  # there is something even newer
        mailbox.progress = step.progress
        if step.error is not None:
            self._postpone(mailbox, step.obj, step.error)
        elif (step.changed and not step.settled) or mailbox.revisited:
            mailbox.state = step.obj
        elif step.delay is not None:
            self._schedule(mailbox, step.obj, step.delay)

    def _follow_own_write(self, mailbox: ObjectState, before: KubeObject, after: KubeObject) -> None:
        """We have changed the object: everything that was there before is old now."""
        version = after.head.resourceVersion
        mailbox.writes.finish(version, previous=before.head.resourceVersion)
        state = mailbox.state
        if state is not None and not mailbox.writes.is_superseded(state.head.resourceVersion, version):
            return  # there is something even newer
        if state is not None and mailbox.writes.expecting:
            self._suspect(mailbox, state)  # with incomparable versions, it only seems to be older
        mailbox.state = None
        if self._background is not None:
            self._background.refresh(after)

    def _schedule(self, mailbox: ObjectState, obj: KubeObject, delay: float) -> None:
        if mailbox.gone:
            return
        mailbox.known = obj
        mailbox.timer = asyncio.get_running_loop().call_later(delay, self._wake_up, mailbox)

    def _wake_up(self, mailbox: ObjectState) -> None:
        mailbox.timer = None
        if mailbox.state is None:
            mailbox.state = mailbox.known
        self._enqueue(mailbox, self._news)
        self._start_workers()

    def _revisit(self, obj: KubeObject) -> None:
        """Look at the object again: something that it has waited for (a daemon, a timer) has exited."""
        if self._is_stopping:
            return
        mailbox = self._mailboxes.get(obj.head.key)
        if mailbox is None:
            mailbox = ObjectState(obj.head.key, comparable_versions=self._runtime.comparable_versions)
            self._mailboxes[obj.head.key] = mailbox
        mailbox.revisited = True
        if mailbox.errors and obj.head.deletionTimestamp is not None:
            mailbox.stop_timer()  # the deletion waits for what has exited, not for the cure of the errors
        if mailbox.state is None and not mailbox.handling and not mailbox.gone:
            # Otherwise, the state is known when the current handling is over.
            mailbox.progress = None
            mailbox.state = self._unreadable.get_latest(obj)
        self._enqueue(mailbox, self._news)
        self._start_workers()

    def _postpone(self, mailbox: ObjectState, obj: KubeObject, error: BaseException) -> None:
        """Leave the object alone for some time after an error of ours or of the API; the longer the more of them."""
        object_logger = ObjectLogger(body=obj, settings=self._runtime.settings)
        if isinstance(error, PatchConflict) and not mailbox.conflicts:
            mailbox.conflicts += 1
            object_logger.debug("The object has changed meanwhile; going on from its fresh state: %s", str(error))
            if mailbox.state is None:
                self._schedule(mailbox, obj, self._troubles.get_delay(1))
            return
        mailbox.errors += 1
        delay = self._troubles.get_delay(mailbox.errors)
        self._troubles.report(mailbox, obj, error, delay)
        if mailbox.state is None or not is_overtaking(mailbox.state, obj):
            self._schedule(mailbox, obj, delay)

    def pause(self) -> None:
        """Start no handlers, and stop the daemons & timers; what is running, is not interrupted."""
        self._is_paused = True
        if self._background is not None:
            self._background.pause()

    def resume(self) -> None:
        """Go on with everything that was not finished before the pause, or has come since then."""
        if not self._is_paused:
            return
        self._is_paused = False
        if self._background is not None:
            self._background.resume()
        for mailbox in [*self._mailboxes.values()]:
            self._enqueue(mailbox, self._news)
        self._start_workers()

    async def stop(self) -> None:
        """Let the current handlers finish in a reasonable time, start nothing new, and cancel what is left."""
        self._is_stopping = True
        self._runtime.executor.threads.usage.unsubscribe(self._start_workers)
        for mailbox in self._mailboxes.values():
            mailbox.stop_timer()
            mailbox.stop_suspecting()
        self._news.clear()
        self._backlog.clear()
        if self._background is not None:
            await self._background.stop(DaemonStoppingReason.OPERATOR_EXITING, _DAEMONS_EXIT_TIMEOUT)
        timeout = self._runtime.settings.queueing.exit_timeout
        await _wait(self._tasks, timeout)
        for task, mailbox in self._tasks.items():
            if not mailbox.is_saving:
                task.cancel()
        await _wait(self._tasks, timeout)
        # What the handlers have done, must not be lost: otherwise, they will be called again.
        savers = [task for task, mailbox in self._tasks.items() if mailbox.is_saving]
        await _wait(savers, max(0.0, _SAVING_EXIT_TIMEOUT - timeout))
        for task in self._tasks:
            task.cancel()
        await _wait(self._tasks, timeout)


async def _wait(tasks: Collection[asyncio.Task[None]], timeout: float) -> None:
    if tasks:
        await asyncio.wait([*tasks], timeout=timeout)
