"""
Attachments: what the operator attaches to an object for as long as it is interested in it.

That is our finalizer, which blocks the deletion until everything is done, and the daemons & timers, which accompany the
object. The finalizer stays at least as long as any of those run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kopf._controller.background.spawning import Background
from kopf._controller.background.stopping import DaemonStoppingReason
from kopf._controller.handled_memory import HandledMemory
from kopf._handlers.causes import ResourceCause
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._logging.loggers import ObjectLogger
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange

_MAX_REMOVALS = 3
"""How many times an unneeded finalizer is removed, until it is obvious that somebody else insists on it."""


class Attachments:
    """The attachments of one object in one state of it."""

    def __init__(
        self,
        obj: KubeObject,
        background: Background | None,
        handled: HandledMemory,
        *,
        finalizer: str,
        logger: ObjectLogger,
    ) -> None:
        self._obj = obj
        self._background = background
        self._handled = handled
        self._logger = logger
        self.finalizer = finalizer

    @property
    def is_blocked(self) -> bool:
        """Whether our finalizer is on the object."""
        return self.finalizer in (self._obj.head.finalizers or ())

    @property
    def is_deleted(self) -> bool:
        """Whether the object is marked for deletion."""
        return self._obj.head.deletionTimestamp is not None

    @property
    def is_to_disappear(self) -> bool:
        """Whether there will be no object once our finalizer is removed."""
        return self.is_deleted and self._obj.head.finalizers == [self.finalizer]

    @property
    def has_company(self) -> bool:
        """Whether any daemons or timers of the object are still running."""
        return self._background is not None and self._background.is_running(self._obj.head.key)

    def accompany(
        self, cause: ResourceCause, spawning: Sequence[SpawningHandler], *, unknown: Collection[ResourceHandler] = ()
    ) -> None:
        """
        Start & stop the daemons and timers of the object, so that only the matching ones run.

        Those of which it is ``unknown`` whether they match, are neither started nor stopped.
        """
        if self._background is not None:
            if self.is_deleted:
                self._background.stop_all_of(self._obj.head.key, DaemonStoppingReason.RESOURCE_DELETED)
            else:
                self._background.match(cause, spawning, unknown={item.id for item in unknown})

    def get_change(
        self, demanding: Iterable[ChangingHandler | SpawningHandler], *, unknown: Collection[ResourceHandler] = ()
    ) -> FinalizerChange | None:
        """
        What to do with the finalizer on an object that is not being deleted.

        Daemons and timers that have exited for good do not need it anymore. While it is ``unknown`` whether some
        handlers are for the object, the finalizer is not removed.
        """
        required = any(handler.requires_finalizer and not self._is_over(handler) for handler in demanding)
        if required:
            self._handled.forget_removals(self._obj.head.key)
        if self.is_deleted or required == self.is_blocked:
            return None
        if required:
            self._logger.debug("Adding the finalizer, thus preventing the actual deletion.")
            return FinalizerChange.ADD
        return None if unknown else self.get_removal()

    def _is_over(self, handler: ChangingHandler | SpawningHandler) -> bool:
        return (
            isinstance(handler, SpawningHandler)
            and self._background is not None
            and self._background.is_over(self._obj.head.key, handler)
        )

    def get_removal(self) -> FinalizerChange | None:
        """
        Remove the finalizer, as no handlers require it: e.g. those of an older version of the operator did.

        Not while something still runs for the object, and not again and again if somebody else puts it back.
        """
        if not self.is_blocked or self.has_company or not self._is_worth_removing():
            return None
        self._logger.debug("Removing the finalizer, as there are no handlers requiring it.")
        return FinalizerChange.REMOVE

    def _is_worth_removing(self) -> bool:
        """Tell if the finalizer is not put back by somebody else again and again; say it once."""
        uid = self._obj.head.key
        if self.is_deleted or self._handled.get_removals(uid) < _MAX_REMOVALS:
            return True
        if self._handled.get_removals(uid) == _MAX_REMOVALS:
            self._handled.count_removal(uid)  # not again for this object
            self._logger.warning(
                "The finalizer %r is not needed by this operator, but somebody else puts it back; it is left there. "
                "If it is another operator, give them different names: settings.persistence.finalizer.",
                self.finalizer,
            )
        return False

    def note_removal(self) -> None:
        """The finalizer is removed from the object indeed."""
        if self.is_deleted:
            self._handled.note_release(self._obj.head.key)
        else:
            self._handled.count_removal(self._obj.head.key)

    def release(self) -> FinalizerChange:
        """Let the object go."""
        self._logger.debug("Removing the finalizer, thus allowing the actual deletion.")
        return FinalizerChange.REMOVE
