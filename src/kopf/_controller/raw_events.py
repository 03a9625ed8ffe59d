"""
Raw events: every event of the watch stream goes to the event handlers, one by one, in the order of arrival.

Every event counts, so newer ones do not replace it. But a slow handler must not fill the memory with events. So when
too many events wait, the stream waits, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from kopf._client.errors import APIConflictError
from kopf._client.resources.patching import PatchConflict, patch_object
from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.changes.selection import is_filtered
from kopf._controller.error_texts import describe_error
from kopf._controller.runtime import Runtime
from kopf._controller.tracked_objects import TrackedObject
from kopf._controller.unreadable import report_unreadable
from kopf._controller.workers import Workers
from kopf._handlers.attempts import Attempt, deliver_result
from kopf._handlers.causes import WatchingCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.filters import matches
from kopf._handlers.handlers import WatchingHandler
from kopf._handlers.registry import HandlersOfResource, deduplicate
from kopf._logging.loggers import LocalObjectLogger, Logger, ObjectLogger
from kopf._values.bodies import Body
from kopf._values.codec import UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource
from kopf._values.user_functions import FilterError

logger = logging.getLogger(__name__)

_ENOUGH_EVENTS = 10_000
"""The number of waiting events of a resource at which the stream waits."""

_ENOUGH_BYTES = 64 * 1024 * 1024
"""The same in bytes of JSON: large objects are up to 3 MiB each."""

_CONFLICT_DELAYS = (0.05, 0.2, 1.0, 3.0)
"""How long to wait for a fresh state of the object after each conflict of a patch, in seconds."""


class RawEvents:
    """The raw events of one resource, from the stream to the handlers. Without handlers, it costs nothing."""

    def __init__(self, runtime: Runtime, resource: Resource, handlers: HandlersOfResource, workers: Workers) -> None:
        self._runtime = runtime
        self._resource = resource
        self.handlers = handlers.watching
        self._unfiltered = () if any(map(is_filtered, self.handlers)) else tuple(deduplicate(self.handlers))
        """The handlers of every event; none if they depend on the object."""
        self._workers = workers
        self._count = 0
        self._size = 0
        """The size of the waiting events, in bytes of JSON."""
        self._room = asyncio.Event()

    def put(self, tracked: TrackedObject, event: WatchEvent) -> None:
        """Append the event to the other ones of the object."""
        self._count += 1
        self._size += event.object.size
        if tracked.events is None:
            tracked.events = deque((event,))
        else:
            tracked.events.append(event)

    def _take(self, tracked: TrackedObject) -> WatchEvent:
        """Remove and return the next event of the object; there must be one."""
        if tracked.events is None:
            raise RuntimeError("There are no events to handle.")
        event = tracked.events.popleft()
        if not tracked.events:
            tracked.events = None
        self._count -= 1
        self._size -= event.object.size
        if self._count <= _ENOUGH_EVENTS // 2 and self._size <= _ENOUGH_BYTES // 2:
            self._room.set()
        return event

    def drop(self, tracked: TrackedObject) -> None:
        """Drop the events of an object that belongs to another replica now."""
        while tracked.events is not None:
            self._take(tracked)

    @property
    def is_full(self) -> bool:
        """Whether too many events wait for their handlers, and not for the indices."""
        is_full = self._count >= _ENOUGH_EVENTS or self._size >= _ENOUGH_BYTES
        return is_full and self._runtime.index_readiness.is_open

    async def wait_for_room(self) -> None:
        """If it is full, wait until half of it is free."""
        ids = ", ".join(sorted(handler.id for handler in self.handlers))
        logger.warning(
            "%d events (%d MiB) of %r wait for their handlers (%s), which are too slow or hang. Until they catch up, "
            "the operator reads nothing more from the watch-stream.",
            self._count,
            self._size // 2**20,
            self._resource,
            ids,
        )
        self._room.clear()
        await self._room.wait()

    async def handle_next(self, tracked: TrackedObject) -> WatchEvent:
        """Call the matching handlers for the next event of the object; return the event. Errors are only logged."""
        event = self._take(tracked)
        if event.object.pruned:
            report_unreadable(tracked, event.object, event.object.pruned, settings=self._runtime.settings)
        else:
            await self._try_to_handle(tracked, event)
        return event

    async def _try_to_handle(self, tracked: TrackedObject, event: WatchEvent) -> None:
        try:
            await self._handle(tracked, event)
        except UnreadableError as e:
            report_unreadable(tracked, event.object, str(e), settings=self._runtime.settings)
        except (Exception, asyncio.CancelledError) as e:
            if isinstance(e, asyncio.CancelledError) and not self._workers.go_on(tracked.key):
                raise
            # The next events matter as much, so they are not delayed.
            object_logger = ObjectLogger(body=event.object, settings=self._runtime.settings)
            text = "The event could not be handled, and is skipped: %s"
            reason, culprit = describe_error(e)
            object_logger.error(text, reason, exc_info=culprit)

    async def _handle(self, tracked: TrackedObject, event: WatchEvent) -> None:
        """Call the handlers. If the object has changed since the event, patch its latest known state."""
        obj = event.object.for_users()
        body = Body(obj)
        patch = Patch(body=body)
        cause = WatchingCause(
            logger=LocalObjectLogger(body=body, settings=self._runtime.settings),
            memo=self._runtime.memos.defer(obj.head.key),
            indices=self._runtime.indices,
            resource=self._resource,
            body=body,
            patch=patch,
            type=event.type,
        )
        # One by one: the filters of a handler see the effects of the previous handlers.
        matching = self._unfiltered or deduplicate(handler for handler in self.handlers if _matches(handler, cause))
        for handler in matching:
            if self._runtime.pause.is_held(tracked.key):
                break  # the replica that takes the object over handles it anew
            attempt, around = Attempt.first(self._runtime.clock.now()), Surroundings(user_code=self._workers.user_code)
            # With no name for the outcome here: see the executor on errors and frames.
            deliver_result(handler, await self._runtime.executor.execute(handler, cause, attempt, around), patch)
        if patch and event.type != "DELETED":
            await self._deliver(tracked, event.object, patch, cause.logger)

    async def _deliver(self, tracked: TrackedObject, obj: KubeObject, patch: Patch, logger: Logger) -> None:
        """Patch the object; after a conflict, wait for its fresh state. Raises the last error if none comes."""
        for delay in (*_CONFLICT_DELAYS, None):
            latest = tracked.events[-1].object if tracked.events else obj
            try:
                await patch_object(self._runtime.api, self._resource, latest, patch, logger=logger)
            except (PatchConflict, APIConflictError) as e:
                if delay is None:
                    raise
                logger.debug("The object has changed meanwhile; its fresh state will be patched: %s", str(e))
                with self._workers.user_code:
                    await asyncio.sleep(delay)
            else:
                return


def _matches(handler: WatchingHandler, cause: WatchingCause) -> bool:
    """Check the filters. If they fail, only this handler misses the event."""
    try:
        return matches(handler, cause)
    except FilterError as e:
        cause.logger.error("%s. The handler is not called for this event.", e, exc_info=e.__cause__)
        return False
