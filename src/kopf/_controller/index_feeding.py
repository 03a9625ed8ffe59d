"""
Feeding the indices: the indexing functions are called for every event.

It is done right where the events come in, before anything else is done with the objects, and holds no workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.indexing.indices import ObjectKey
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import IndexingHandler
from kopf._handlers.matching import matches
from kopf._logging.loggers import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource

_QUIETLY = Surroundings(is_quiet=True)


async def feed_indices(
    runtime: Runtime, resource: Resource, handlers: Collection[IndexingHandler], events: Iterable[WatchEvent]
) -> None:
    """Bring the indices in line with the events of one resource."""
    groups: dict[HandlerId, list[IndexingHandler]] = {}
    for handler in handlers:
        groups.setdefault(handler.id, []).append(handler)
    for event in events:
        if event is LISTED:
            continue
        owner = (resource, event.object.head.key)
        if event.type == "DELETED":
            for id in groups:
                runtime.indexers[id].forget(owner)
        elif event.object.pruned:  # it cannot be decoded, so it is unknown what it has
            for id in groups:
                runtime.indexers[id].discard(owner)
        else:
            await _index(runtime, resource, groups, owner, event.object)


async def _index(
    runtime: Runtime,
    resource: Resource,
    groups: Mapping[HandlerId, Collection[IndexingHandler]],
    owner: ObjectKey,
    obj: KubeObject,
) -> None:
    body = Body(obj.for_users())
    cause = ResourceCause(
        logger=LocalObjectLogger(body=body, settings=runtime.settings),
        memo=runtime.memos.borrow(obj.head.key),
        indices=runtime.indices,
        resource=resource,
        body=body,
        patch=Patch(body=body),
    )
    now = runtime.clock.now()
    for id, group in groups.items():
        indexer = runtime.indexers[id]
        if indexer.is_excluded(owner, now):
            continue
        try:
            handler = next((item for item in group if matches(item, cause)), None)
        except Exception as e:  # of the callbacks; the values are kept, as with the errors of the functions
            cause.logger.error("Indexer %r cannot be filtered, and is skipped: %s", id, e, exc_info=e)
            continue
        if handler is None:
            indexer.discard(owner)
            continue
        attempt = indexer.get_attempt(owner, now)
        outcome = await runtime.executor.execute(handler, cause, attempt, _QUIETLY)
        indexer.accept(owner, outcome, attempt, now)
    runtime.memos.give_back(obj.head.key)
