"""The view: an object as it is looked at, with all that is known of it, and with what the users get of it."""

from __future__ import annotations

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
from kopf._controller.changes.saving import Carried
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import select
from kopf._handlers.causes import ChangingCause
from kopf._logging.loggers import ObjectLogger
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import CREATE, NOOP, UPDATE, Reason

EMPTY = b"{}"
"""The snapshot of a state that is not known: compared to it, everything has changed."""


class View:
    """
    One object in one state of it.

    Large because the decision, the handlers, and the saving have to know that much of the object.
    """

    __slots__ = ("_carried", "_cause", "_scope", "body", "logger", "obj", "patch", "situation", "unsaved")

    def __init__(self, scope: ReconciliationScope, obj: KubeObject, carried: Carried) -> None:
        self._scope = scope
        self._carried = carried
        self._cause: ChangingCause | None = None
        self.obj = obj
        known = None if carried.saved is None else carried.saved.snapshot
        detected = detect(obj, scope.snapshots, finalizer=scope.finalizer, initial=carried.initial, snapshot=known)
        self.unsaved = carried.unsaved
        """What is to be saved before anything else."""
        if self.unsaved is not None and is_overtaken(detected, self.unsaved.reason):
            self.unsaved = None
        if self.unsaved is not None and self.unsaved.patch.fns:
            self.unsaved.patch.deliveries.settle(obj, obj.head.resourceVersion)
        # Not before the detection: what is found out there of the object, goes to the body.
        self.body = Body(obj.for_users())
        self.logger = ObjectLogger(body=self.body, settings=scope.runtime.settings)
        self.patch = Patch(None, self.body) if self.unsaved is None else self.unsaved.patch
        """What the users want to be changed."""
        self.situation = self._observe(detected)

    def _observe(self, detected: Detection) -> Situation:
        """Collect all that is known of the object."""
        scope, carried, obj = self._scope, self._carried, self.obj
        key = obj.head.key
        unsaved, saved = self.unsaved, carried.saved
        memory = scope.handled.recall(key) if unsaved is None else None
        if detected.reason is NOOP and memory is not None and memory != make_fingerprint(detected.snapshot):
            scope.rivals.note(obj)  # it is handled in this state, but not here
        is_released = scope.handled.is_released(key)
        detection = detected  # mostly, nothing else is known of a new object
        if memory is not None or is_released:
            detection = recognise(
                detected, memory, is_released=is_released, last=scope.handled.recall_snapshot(key)
            )
        now = scope.runtime.clock.now()
        remembered = {} if saved is None else saved.states
        return Situation(
            key=key,
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
            removals=scope.handled.get_removals(key),
            is_restoring=detected is not detection and self._is_lost(detected, detection),
            background=scope.background,
        )

    def _is_lost(self, detected: Detection, detection: Detection) -> bool:
        """Tell if the last handled state was removed by others from the object, and is to be restored there."""
        if detected.reason is not CREATE or detection.reason not in (NOOP, UPDATE):
            return False
        losses = self._scope.handled.count_loss(self.obj.head.key)
        if losses == 1:
            self.logger.warning(
                "The last handled configuration of the object was removed by somebody else. It is not considered as "
                "new, since it was already handled here. After a restart, it will be."
            )
        return losses <= MAX_RESTORATIONS

    def choose(self, reason: Reason) -> Choice:
        """Select the handlers for the reason."""
        candidates = self._scope.candidates
        if not candidates.is_filtered:
            return candidates.select_all(reason, initial=self._carried.initial)
        return select(candidates, self.get_cause(reason))

    def get_cause(self, reason: Reason) -> ChangingCause:
        """Get what the handlers get, if that is the reason."""
        if self._cause is None or self._cause.reason is not reason:
            self._cause = self._make_cause(reason)
        return self._cause

    def _make_cause(self, reason: Reason) -> ChangingCause:
        is_known = self._carried.saved is not None and self._carried.saved.snapshot is not None
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
            initial=self._carried.initial,
            get_change=self.situation.detection.get_change,
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
