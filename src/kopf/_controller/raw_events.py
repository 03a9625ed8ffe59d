"""Raw events: every event of the watch stream goes to the handlers that spy on them, one by one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from kopf._client.errors import APIConflictError
from kopf._client.resources.patching import PatchConflict, patch_object
from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import WatchingCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import WatchingHandler
from kopf._handlers.matching import FilterError, matches
from kopf._handlers.outcomes import Attempt
from kopf._handlers.registry import HandlersOfResource, deduplicate
from kopf._handlers.results import deliver_result
from kopf._logging.loggers import LocalObjectLogger, Logger
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.raw_events import LazyEvent
from kopf._values.resources import Resource

_CONFLICT_DELAYS = (0.05, 0.2, 1.0, 3.0)
"""How long to wait for the next states of the object if a patch conflicts with the actual one, in seconds."""


async def handle_raw_event(
    runtime: Runtime,
    resource: Resource,
    handlers: HandlersOfResource,
    event: WatchEvent,
    *,
    get_latest: Callable[[], KubeObject],
    user_code: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """
    Call the matching handlers for one event; their errors are logged and ignored.

    If the object has changed since the event, their patches are applied to the latest known state of it.
    """
    obj = event.object.for_users()
    body = Body(obj)
    patch = Patch(body=body)
    cause = WatchingCause(
        logger=LocalObjectLogger(body=body, settings=runtime.settings),
        memo=runtime.memos.recall(obj.head.key),
        indices=runtime.indices,
        resource=resource,
        body=body,
        patch=patch,
        event=LazyEvent(event.type, obj),
    )
    for handler in deduplicate(handler for handler in handlers.watching if _matches(handler, cause)):
        await _call(runtime, handler, cause, user_code)
    if patch and event.type != "DELETED":
        await _deliver(runtime, resource, patch, get_latest, user_code, logger=cause.logger)


def _matches(handler: WatchingHandler, cause: WatchingCause) -> bool:
    """Check the filters. If they fail, this handler misses the event, but the others do not."""
    try:
        return matches(handler, cause)
    except FilterError as e:
        cause.logger.error("%s. The handler is not called for this event.", e, exc_info=e.__cause__)
        return False


async def _deliver(
    runtime: Runtime,
    resource: Resource,
    patch: Patch,
    get_latest: Callable[[], KubeObject],
    waiting: Callable[[], AbstractContextManager[None]],
    *,
    logger: Logger,
) -> None:
    """Patch the object; in case of a conflict, wait for its fresh state. Raises the last error if there is none."""
    for delay in _CONFLICT_DELAYS:
        try:
            await patch_object(runtime.api, resource, get_latest(), patch, logger=logger)
        except (PatchConflict, APIConflictError) as e:
            logger.debug("The object has changed meanwhile; its fresh state will be patched: %s", str(e))
            with waiting():
                await asyncio.sleep(delay)
        else:
            return
    await patch_object(runtime.api, resource, get_latest(), patch, logger=logger)


async def _call(
    runtime: Runtime,
    handler: WatchingHandler,
    cause: WatchingCause,
    user_code: Callable[[], AbstractContextManager[None]],
) -> None:
    attempt = Attempt.first(runtime.clock.now())
    outcome = await runtime.executor.execute(handler, cause, attempt, Surroundings(user_code=user_code))
    deliver_result(handler, outcome, cause.patch, logger=cause.logger)
