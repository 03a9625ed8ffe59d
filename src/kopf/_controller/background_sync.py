"""
Sync: one look at an object of a resource that has only daemons and timers, and no handlers of changes.

Nobody asks there what has changed since when, so it is not detected, and nothing is kept on the objects, except for the
finalizer. It is several times cheaper than a reconciliation, and there can be many objects when an operator starts.
"""

from __future__ import annotations

from kopf._client.resources.patching import PatchOptions, patch_object
from kopf._controller.changes.decision import Choice, Situation, conclude, decide
from kopf._controller.changes.detection import Detection
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.saved_states import SavedStates
from kopf._controller.changes.saving import Result, note_finalizer, note_removal
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.selection import select_background
from kopf._handlers.causes import ResourceCause
from kopf._logging.loggers import ObjectLogger
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch
from kopf._values.reasons import Reason


async def sync(scope: ReconciliationScope, obj: KubeObject, *, errors: int) -> Result:
    """
    Start and stop the daemons & timers of the object; block it from deletion while they need that.

    ``errors`` is how many times in a row it has failed before. Raises the errors of the API if the object could not be
    patched.
    """
    if scope.handled.is_released(obj.head.key):
        return Result(obj, resumed=True)
    background, finalizer = scope.background, scope.finalizer
    cause = _make_cause(scope, obj)
    situation = _observe(scope, obj, cause, errors)

    def choose(reason: Reason) -> Choice:
        if not scope.candidates.is_filtered:
            return scope.candidates.select_all(reason, initial=False)
        return select_background(scope.candidates, cause, reason)

    plan = decide(situation, choose)
    for error in plan.skipped:
        cause.logger.error("%s. The handler is skipped.", error)
    if background is not None and not plan.is_background_kept:
        if situation.blocking.is_deleted:
            background.stop_all_of_deleted(situation.key)
        else:
            background.match(cause, plan.spawning, unknown={handler.id for handler in plan.choice.failures})
    conclude(plan, situation, situation.now)
    note_finalizer(plan, scope.handled, situation.key, finalizer=finalizer, logger=cause.logger)
    if plan.finalizer is None and not cause.patch:
        return Result(obj, resumed=True, error=plan.error)
    patched = await patch_object(
        scope.runtime.api,
        scope.resource,
        obj,
        cause.patch,
        PatchOptions(finalizer, plan.finalizer),
        logger=cause.logger,
    )
    if plan.finalizer is FinalizerChange.REMOVE:
        note_removal(scope.handled, obj)
    if patched is None:
        return Result(None, resumed=True)
    is_changed = patched.head.resourceVersion != obj.head.resourceVersion
    return Result(patched, changed=is_changed, resumed=plan.resumed, error=plan.error)


def _make_cause(scope: ReconciliationScope, obj: KubeObject) -> ResourceCause:
    runtime, body = scope.runtime, Body(obj.for_users())
    return ResourceCause(
        logger=ObjectLogger(body=body, settings=runtime.settings),
        memo=runtime.memos.recall(obj.head.key),
        indices=runtime.indices,
        resource=scope.resource,
        body=body,
        patch=Patch(body=body),
    )


def _observe(scope: ReconciliationScope, obj: KubeObject, cause: ResourceCause, errors: int) -> Situation:
    blocking = Blocking.of(obj, scope.finalizer)
    reason = Reason.NOOP if not blocking.is_deleted else Reason.DELETE if blocking.is_ours else Reason.FREE
    now = scope.runtime.clock.now()
    return Situation(
        key=obj.head.key,
        detection=Detection(reason),
        blocking=blocking,
        saved=SavedStates(scope.persistence.progress_storage, cause.body, now, remembered={}),
        now=now,
        errors=errors,
        removals=scope.handled.get_removals(obj.head.key),
        background=scope.background,
    )
