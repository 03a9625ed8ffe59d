"""
Feeding the indices: the calls of indexing functions for events, and their results.

It comes before everything else with the objects, and occupies no workers.
"""

from __future__ import annotations

from collections.abc import Collection

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.indexing.indices import ObjectKey
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.filters import matches
from kopf._handlers.handlers import IndexingHandler
from kopf._logging.loggers import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

_QUIETLY = Surroundings(is_quiet=True)


class IndexingCalls(FrozenRecord, frozen=True):
    """The functions to call for an object."""

    cause: ResourceCause
    owner: ObjectKey
    handlers: list[IndexingHandler]


class IndexFeeder:
    """Brings the indices in line with the events of one resource, one by one."""

    def __init__(self, runtime: Runtime, resource: Resource, handlers: Collection[IndexingHandler]) -> None:
        self._runtime = runtime
        self._resource = resource
        self._groups: dict[HandlerId, list[IndexingHandler]] = {}
        for handler in handlers:
            self._groups.setdefault(handler.id, []).append(handler)

    def plan(self, event: WatchEvent) -> IndexingCalls | None:
        """Update the indices where this needs no calls; otherwise, return the calls for :meth:`call`."""
        owner, indexers = (self._resource, event.object.head.key), self._runtime.indexers
        if event.type == "DELETED":
            for id in self._groups:
                indexers[id].forget(owner)
        elif event.object.pruned:  # it cannot be decoded, so its values are unknown
            for id in self._groups:
                indexers[id].discard(owner)
        else:
            return self._plan_calls(owner, event.object)
        return None

    def _plan_calls(self, owner: ObjectKey, obj: KubeObject) -> IndexingCalls | None:
        runtime = self._runtime
        body = Body(obj.for_users())
        cause = ResourceCause(
            logger=LocalObjectLogger(body=body, settings=runtime.settings),
            memo=runtime.memos.borrow(obj.head.key),
            indices=runtime.indices,
            resource=self._resource,
            body=body,
            patch=Patch(body=body),
        )
        now = runtime.clock.now()
        handlers: list[IndexingHandler] = []
        for id, group in self._groups.items():
            if runtime.indexers[id].is_excluded(owner, now):
                continue
            try:
                handler = next((item for item in group if matches(item, cause)), None)
            except Exception as e:  # of the callbacks; the values are kept, as with the errors of the functions
                cause.logger.error("Indexer %r cannot be filtered, and is skipped: %s", id, e, exc_info=e)
                continue
            if handler is None:
                runtime.indexers[id].discard(owner)
            else:
                handlers.append(handler)
        if handlers:
            return IndexingCalls(cause, owner, handlers)
        runtime.memos.give_back(obj.head.key)
        return None

    async def call(self, calls: IndexingCalls) -> None:
        """Call the functions one by one. The results go to the indices at once, so the next function sees them."""
        runtime, cause = self._runtime, calls.cause
        try:
            for handler in calls.handlers:
                indexer, now = runtime.indexers[handler.id], runtime.clock.now()
                attempt = indexer.get_attempt(calls.owner, now)
                outcome = await runtime.executor.execute(handler, cause, attempt, _QUIETLY)
                indexer.accept(calls.owner, outcome, attempt, now)
        finally:
            runtime.memos.give_back(cause.body.object.head.key)
