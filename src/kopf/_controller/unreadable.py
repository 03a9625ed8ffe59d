"""
Objects that cannot be decoded, e.g. because of deep nesting: anybody can create them, and they must harm nobody.

They are not handled until they change, with one warning for each. Kopf does not block their deletion.
"""

from __future__ import annotations

from kopf._client.resources.patching import PatchOptions, patch_object
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.object_memory import Result
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.writing import note_removal
from kopf._controller.tracked_objects import TrackedObject
from kopf._logging.loggers import ObjectLogger
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch


def report_unreadable(tracked: TrackedObject, obj: KubeObject, problem: str, *, settings: OperatorSettings) -> None:
    """Keep the readable part of the object, and warn once about the problem."""
    is_new = tracked.stub is None
    stub = tracked.stub = obj.make_stub(problem)
    if is_new:
        ObjectLogger(body=stub, settings=settings).warning(
            "The object cannot be decoded: %s. It is not handled until that changes.", problem
        )


async def release_unreadable(
    scope: ReconciliationScope, tracked: TrackedObject, obj: KubeObject, problem: str
) -> Result:
    """Release the object if it is being deleted; nothing else can be done. Raises the errors of the API."""
    settings, background = scope.runtime.settings, tracked.memory.background
    report_unreadable(tracked, obj, problem, settings=settings)
    blocking = Blocking.of(obj, scope.finalizer)
    if background is not None and blocking.is_deleted:
        background.stop_as_deleted()
    if not blocking.is_deleted or not blocking.is_ours or (background is not None and background.has_running()):
        return Result(obj)
    logger = ObjectLogger(body=obj, settings=settings)
    logger.warning("The object cannot be decoded. It is deleted with no handlers called for that.")
    options = PatchOptions(scope.finalizer, FinalizerChange.REMOVE)
    written = await patch_object(scope.runtime.api, scope.resource, obj, Patch(), options, logger=logger)
    note_removal(obj, tracked.memory)
    return Result(written, changed=written is not None, settled=True)
