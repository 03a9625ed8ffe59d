"""
Observation: an object as it is now, with all that is known of it, and with what the users get of it.

It only looks: nothing is called, saved, or counted because of that. So it is what an explanation begins with, too.
"""

from __future__ import annotations

from kopf._controller.changes.carried import Carried
from kopf._controller.changes.decision import (
    MAX_RESTORATIONS,
    Choice,
    Plan,
    Situation,
    is_overtaken,
    make_fingerprint,
    recognise,
)
from kopf._controller.changes.detection import Detection, detect
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.progress import find_seen
from kopf._controller.changes.saved_states import SavedStates
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import select, select_background
from kopf._controller.object_memory import ObjectMemory
from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._logging.loggers import ObjectLogger
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import CREATE, DELETE, FREE, NOOP, UPDATE, Reason

EMPTY = b"{}"
"""The snapshot of a state that is not known: compared to it, everything has changed."""


class Observation:
    """
    One object in one state of it. Raises :class:`UnreadableError` if the object cannot be decoded.

    Large because the decision, the handlers, and the writing have to know that much of the object.
    """

    __slots__ = (
        "_cause",
        "_scope",
        "body",
        "carried",
        "is_handled_elsewhere",
        "is_lost",
        "logger",
        "memory",
        "obj",
        "patch",
        "situation",
        "unsaved",
    )

    def __init__(self, scope: ReconciliationScope, obj: KubeObject, carried: Carried, memory: ObjectMemory) -> None:
        self._scope = scope
        self._cause: ChangingCause | None = None
        self.obj = obj
        self.carried = carried
        self.memory = memory
        detected = self._detect()
        self.unsaved = carried.unsaved
        """What is to be saved before anything else."""
        if self.unsaved is not None and is_overtaken(detected, self.unsaved.reason):
            self.unsaved = None
        fingerprint = memory.fingerprint if self.unsaved is None else None
        detection = detected  # mostly, nothing else is known of a new object
        if fingerprint is not None or memory.is_released:
            detection = recognise(detected, fingerprint, is_released=memory.is_released, last=memory.snapshot)
        self.is_handled_elsewhere = (
            detected.reason is NOOP and fingerprint is not None and fingerprint != make_fingerprint(detected.snapshot)
        )
        """Whether the object is marked as handled in a state in which it was not handled here."""
        self.is_lost = detected.reason is CREATE and detected is not detection and detection.reason in (NOOP, UPDATE)
        """Whether the last handled state was removed from the object by others."""
        # Not before the detection: what is found out there of the object, goes to the body.
        self.body = Body(obj.for_users())
        self.logger = ObjectLogger(body=self.body, settings=scope.runtime.settings)
        self.patch = Patch(None, self.body) if self.unsaved is None else self.unsaved.patch
        """What the users want to be changed."""
        self.situation = self._make_situation(detection)

    def _detect(self) -> Detection:
        """Find out what has happened to the object. If no handlers are for changes, nobody asks what has changed."""
        scope, obj, saved = self._scope, self.obj, self.carried.saved
        if scope.candidates.changing:
            known = None if saved is None else saved.snapshot
            initial = self.carried.initial
            return detect(obj, scope.snapshots, finalizer=scope.finalizer, initial=initial, snapshot=known)
        blocking = Blocking.of(obj, scope.finalizer)
        return Detection(NOOP if not blocking.is_deleted else DELETE if blocking.is_ours else FREE)

    def _make_situation(self, detection: Detection) -> Situation:
        """Collect all that is known of the object."""
        scope, carried, obj = self._scope, self.carried, self.obj
        unsaved, saved, memory = self.unsaved, carried.saved, self.memory
        now = scope.runtime.clock.now()
        remembered = {} if saved is None else saved.states
        return Situation(
            key=obj.head.key,
            detection=detection,
            blocking=Blocking.of(obj, scope.finalizer),
            saved=SavedStates(
                scope.persistence.progress_storage,
                self.body,
                now,
                remembered if unsaved is None else {**remembered, **unsaved.states},
                scope.candidates.ids,
                obj,
            ),
            now=now,
            unsaved=None if unsaved is None else unsaved.states.keys(),
            called=carried.called,
            digest=None if saved is None else saved.digest,
            errors=carried.errors,
            removals=memory.removals,
            is_restoring=self.is_lost and memory.losses < MAX_RESTORATIONS,
            background=memory.background,
        )

    def choose(self, reason: Reason) -> Choice:
        """Select the handlers for the reason."""
        candidates = self._scope.candidates
        if not candidates.is_filtered:
            return candidates.select_all(reason, initial=self.carried.initial)
        if not candidates.changing:
            return select_background(candidates, self.get_background_cause(reason), reason)
        return select(candidates, self.get_cause(reason))

    def get_cause(self, reason: Reason) -> ChangingCause:
        """Get what the handlers of changes get, if that is the reason."""
        if self._cause is None or self._cause.reason is not reason:
            self._cause = self._make_cause(reason)
        return self._cause

    def _make_cause(self, reason: Reason) -> ChangingCause:
        is_known = self.carried.saved is not None and self.carried.saved.snapshot is not None
        if self.situation.detection.change is None and not is_known:
            self.body.object.decode_content()  # fail now if it cannot be decoded, and not in the middle of everything
        runtime = self._scope.runtime
        return ChangingCause(
            logger=self.logger,
            memo=runtime.memos.defer(self.situation.key),
            indices=runtime.indices,
            resource=self._scope.resource,
            body=self.body,
            patch=self.patch,
            reason=reason,
            initial=self.carried.initial,
            get_change=self.situation.detection.get_change,
        )

    def get_background_cause(self, reason: Reason) -> ResourceCause:
        """Get what the filters & delays of daemons & timers get: of what has changed, too, if that is known."""
        if self._scope.candidates.changing:
            return self.get_cause(reason)
        runtime = self._scope.runtime
        return ResourceCause(
            logger=self.logger,
            memo=runtime.memos.recall(self.situation.key),
            indices=runtime.indices,
            resource=self._scope.resource,
            body=self.body,
            patch=self.patch,
        )

    def find_baseline(self) -> bytes:
        """Get the state as of the beginning of the creation, also if it was begun before the operator has started."""
        saved, snapshot = self.situation.saved, self.situation.detection.snapshot
        known = None if saved.is_blank else saved.find_baseline(self._scope.candidates.ids)
        return snapshot if known is None else known

    def get_handled_snapshot(self, plan: Plan, baseline: bytes | None) -> bytes:
        """
        What the handlers have really seen: in a creation, other changes meanwhile are updates after it.

        If any of them has seen what is neither the beginning of the creation nor the end of it, then not all that it
        has to see is in their difference, and it is an update of everything. So it is if the beginning was refused and
        is bigger than the actual state (it can be too big).
        """
        snapshot, saved, unsaved = self.situation.detection.snapshot, self.situation.saved, self.unsaved
        if plan.reason is not CREATE or baseline is None or (baseline == snapshot and saved.is_blank):
            return snapshot
        was_refused = unsaved is not None and unsaved.is_reported and unsaved.is_refused
        if was_refused and len(baseline) > len(snapshot):
            return EMPTY
        seen = {*find_seen(plan.choice.accompanying, saved)} if not saved.is_blank else set()
        if seen and not seen <= {plan.seen.get_whole(), SeenStates(CREATE, baseline).get_whole()}:
            return EMPTY
        return baseline
