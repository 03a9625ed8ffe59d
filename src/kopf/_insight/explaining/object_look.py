"""
A look at an object, as the operator itself would look at it now: what has happened to it, and what is to be done.

It is the decision of the operator, made by its own code, but nothing follows from it: nothing is called, saved, noted.
"""

from __future__ import annotations

from kopf._controller.changes.decision import Choice, Plan, Situation, decide, is_overtaken, recognise
from kopf._controller.changes.detection import Detection, detect
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.saved_states import SavedStates
from kopf._controller.changes.selection import Candidates, select, select_background
from kopf._handlers.causes import ChangingCause, ResourceCause, WatchingCause
from kopf._handlers.handlers import ResourceHandler, WatchingHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._insight.explaining.known import Known
from kopf._logging.loggers import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.raw_events import LazyEvent
from kopf._values.reasons import Reason


class ObjectLook:
    """
    What there is to be seen.

    Raises :class:`UnreadableError` if the object cannot be decoded.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._body = Body(known.obj.for_users())
        self.handlers = HandlersOfResource.build(known.handlers or ())
        self.has_changes = bool(self.handlers.changing) or known.handlers is None
        """Whether it matters what has changed in the object."""
        self.blocking = Blocking.of(known.obj, known.settings.persistence.finalizer)
        self.detection = self._detect()
        self.saved = self._recall()
        self.plan = self._decide()

    def _detect(self) -> Detection:
        known, remembered = self._known, self._known.remembered
        if not self.has_changes:
            at_end = Reason.DELETE if self.blocking.is_ours else Reason.FREE
            return Detection(at_end if self.blocking.is_deleted else Reason.NOOP)
        known.obj.check()
        finalizer = known.settings.persistence.finalizer
        detected = detect(known.obj, known.snapshots, finalizer=finalizer, initial=remembered.initial)
        fingerprint = None if self._has_unsaved(detected) else remembered.fingerprint
        return recognise(detected, fingerprint, is_released=remembered.is_released)

    def _has_unsaved(self, detected: Detection) -> bool:
        remembered = self._known.remembered
        return remembered.unsaved is not None and not is_overtaken(detected, remembered.unsaved_reason)

    def _recall(self) -> SavedStates:
        known = self._known
        storage, remembered = known.settings.persistence.progress_storage, known.remembered
        unsaved = (remembered.unsaved or {}) if self._has_unsaved(self.detection) else {}
        keys = tuple(dict.fromkeys(handler.id for handler in self.handlers.changing))
        states = {**remembered.states, **unsaved}
        return SavedStates(storage, self._body, known.now, remembered=states, keys=keys, obj=known.obj)

    def _decide(self) -> Plan:
        remembered = self._known.remembered
        candidates = Candidates(self.handlers)
        situation = Situation(
            key=self._known.obj.head.key,
            detection=self.detection,
            blocking=self.blocking,
            saved=self.saved,
            now=self._known.now,
            unsaved=(remembered.unsaved or {}).keys() if self._has_unsaved(self.detection) else None,
            called=None if remembered.called is None else {*remembered.called},
            errors=remembered.errors,
            removals=remembered.removals,
            background=remembered.background,
        )

        def choose(reason: Reason) -> Choice:
            if not self.has_changes:
                return select_background(candidates, self.make_cause(), reason)
            return select(candidates, self.make_changing_cause(reason))

        return decide(situation, choose)

    def make_changing_cause(self, reason: Reason) -> ChangingCause:
        """What the handlers of changes would get for this reason."""
        known = self._known
        return ChangingCause(
            logger=LocalObjectLogger(body=self._body, settings=known.settings),
            memo=known.memo,
            indices=known.indices,
            resource=known.resource,
            body=self._body,
            patch=Patch(body=self._body),
            reason=reason,
            initial=known.remembered.initial,
            get_change=self.detection.get_change,
        )

    def make_cause(self, handler: ResourceHandler | None = None) -> ResourceCause:
        """What the other handlers would get."""
        known = self._known
        common = {
            "logger": LocalObjectLogger(body=self._body, settings=known.settings),
            "memo": known.memo,
            "indices": known.indices,
            "resource": known.resource,
            "body": self._body,
            "patch": Patch(body=self._body),
        }
        if isinstance(handler, WatchingHandler):
            return WatchingCause(**common, event=LazyEvent("MODIFIED", self._body.object))
        return ResourceCause(**common)
