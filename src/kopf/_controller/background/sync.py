"""
Accompanying: one look at an object of a resource that has only daemons and timers, and no handlers of changes.

Nobody asks there what has changed since when, so it is not detected, and nothing is kept on the objects, except for the
finalizer. It is several times cheaper than a handling cycle, and there can be many objects when an operator starts.
"""

from __future__ import annotations

from kopf._client.resources.patching import patch_object
from kopf._controller.background.spawning import Background
from kopf._controller.changes.finalizer import Attachments
from kopf._controller.changes.saving import Step
from kopf._controller.changes.selection import SpawningSelection, judge_failures
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.registry import HandlersOfResource
from kopf._logging.loggers import ObjectLogger
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch
from kopf._values.resources import Resource


async def accompany(
    runtime: Runtime,
    resource: Resource,
    handlers: HandlersOfResource,
    obj: KubeObject,
    *,
    background: Background,
    handled: HandledMemory,
    errors: int,
) -> Step:
    """
    Start and stop the daemons & timers of the object; block it from deletion while they need that.

    ``errors`` is how many times in a row it has failed before.

    Raises the errors of the API if the object could not be patched.
    """
    if handled.is_released(obj.head.key):
        return Step(obj, resumed=True)
    body = Body(obj.for_users())
    logger = ObjectLogger(body=body, settings=runtime.settings)
    patch = Patch(body=body)
    cause = ResourceCause(
        logger=logger,
        memo=runtime.memos.recall(obj.head.key),
        indices=runtime.indices,
        resource=resource,
        body=body,
        patch=patch,
    )
    finalizer = runtime.settings.persistence.finalizer
    attachments = Attachments(obj, background, handled, finalizer=finalizer, logger=logger)
    selection = SpawningSelection(cause)
    spawning = selection.select_spawning(handlers.spawning)
    error = judge_failures(list(selection.failures.values()), errors, logger=logger)
    change = attachments.get_change(spawning, unknown=selection.failures)
    is_only_blocked = change is FinalizerChange.ADD
    if not is_only_blocked:  # else, in the next look: the deletion must not slip through if we crash in between
        attachments.accompany(cause, spawning, unknown=selection.failures)
        change = change or attachments.get_change(spawning, unknown=selection.failures)  # some exit at once
        if attachments.is_deleted and attachments.is_blocked and not attachments.has_company:
            change, error = attachments.release(), None
    if change is None and not patch:
        return Step(obj, resumed=True, error=error)
    patched = await patch_object(runtime.api, resource, obj, patch, finalizer=finalizer, change=change, logger=logger)
    if change is FinalizerChange.REMOVE:
        attachments.note_removal()
    if patched is None:
        return Step(None, resumed=True)
    is_changed = patched.head.resourceVersion != obj.head.resourceVersion
    return Step(patched, changed=is_changed, resumed=not is_only_blocked, error=error)
