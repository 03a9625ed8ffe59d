"""
Objects that cannot be decoded: e.g. those that are nested too deeply can be created by anybody, and must hurt nobody.

They are not handled until they change, and it is said once for each of them. Their deletion is not blocked by us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._client.resources.patching import PatchOptions, patch_object
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.saving import Result, note_removal
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.runtime import Runtime
from kopf._logging.loggers import ObjectLogger
from kopf._logging.once import Once
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch
from kopf._values.resources import Resource

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background


class UnreadableObjects:
    """The unreadable objects of one resource."""

    def __init__(self, runtime: Runtime, resource: Resource) -> None:
        self._runtime = runtime
        self._resource = resource
        self._stubs: dict[str, KubeObject] = {}
        self._said = Once()

    def __len__(self) -> int:
        return len(self._stubs)

    def get_latest(self, obj: KubeObject) -> KubeObject:
        """Get the latest known state of the object: those who cannot take unreadable ones, have an older state."""
        return self._stubs.get(obj.head.key, obj)

    def report(self, obj: KubeObject, problem: str) -> None:
        """Remember what is known of the object, and warn of it, once, with the problem in words."""
        key = obj.head.key
        stub = self._stubs[key] = obj.make_stub(problem)
        if self._said.is_new(key):
            ObjectLogger(body=stub, settings=self._runtime.settings).warning(
                "The object cannot be decoded: %s. It is not handled until that changes.", problem
            )

    def forget(self, key: str) -> None:
        """The object exists no more, or is readable again."""
        if self._stubs.pop(key, None) is not None:
            self._said.forget(key)

    async def set_aside(
        self, obj: KubeObject, problem: str, *, background: Background | None, handled: HandledMemory
    ) -> Result:
        """Do all that can be done for the object: let it go, if it is deleted. Raises the errors of the API."""
        self.report(obj, problem)
        logger = ObjectLogger(body=obj, settings=self._runtime.settings)
        finalizer = self._runtime.settings.persistence.finalizer
        blocking = Blocking.of(obj, finalizer)
        if background is not None and blocking.is_deleted:
            background.stop_all_of_deleted(obj.head.key)
        is_accompanied = background is not None and background.is_running(obj.head.key)
        if not blocking.is_deleted or not blocking.is_ours or is_accompanied:
            return Result(obj)
        logger.warning("The object cannot be decoded. It is deleted with no handlers called for that.")
        options = PatchOptions(finalizer, FinalizerChange.REMOVE)
        patched = await patch_object(self._runtime.api, self._resource, obj, Patch(), options, logger=logger)
        note_removal(handled, obj)
        return Result(patched, changed=patched is not None, settled=True)
