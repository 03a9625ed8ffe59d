"""
Observation: an object as it is now, with all that is known of it, and with what the users get of it.

It only looks: nothing is called, saved, or counted because of that. So it is what an explanation begins with, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Protocol

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
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import Candidates, select, select_background
from kopf._controller.object_memory import ObjectMemory
from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._logging.loggers import ObjectLogger
from kopf._settings.settings import PersistenceSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import CREATE, DELETE, FREE, NOOP, UPDATE, Reason
from kopf._values.resources import Resource

EMPTY = b"{}"
"""The snapshot of a state that is not known: compared to it, everything has changed."""


class Setting(Protocol):
    """What an observation needs to know besides the object: of its resource, and of the operator."""

    resource: Resource
    candidates: Candidates
    snapshots: Snapshots
    persistence: PersistenceSettings
    finalizer: str
    indices: Mapping[str, Any]
    detects_changes: bool
    """Whether it matters to anybody what has changed in the object."""

    def now(self) -> datetime.datetime:
        """Get the current time."""

    def make_logger(self, body: Body) -> ObjectLogger:
        """Make the logger that the users get."""

    def recall_memo(self, key: str) -> Any:
        """Get the memo of the object."""

    def defer_memo(self, key: str) -> Any:
        """Get it, or :class:`Deferred`, if it is not to be made before somebody looks at it."""


class Observation:
    """
    One object in one state of it. Raises :class:`UnreadableError` if the object cannot be decoded.

    Large because the decision, the handlers, and the writing have to know that much of the object.
    """

    __slots__ = (
        "_cause",
        "_setting",
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

    def __init__(self, setting: Setting, obj: KubeObject, carried: Carried, memory: ObjectMemory) -> None:
        self._setting = setting
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
        self.logger = setting.make_logger(self.body)
        self.patch = Patch(None, self.body) if self.unsaved is None else self.unsaved.patch
        """What the users want to be changed."""
        self.situation = self._make_situation(detection)

    def _detect(self) -> Detection:
        """Find out what has happened to the object. If no handlers are for changes, nobody asks what has changed."""
        setting, obj, saved = self._setting, self.obj, self.carried.saved
        if setting.detects_changes:
            known = None if saved is None else saved.snapshot
            initial = self.carried.initial or bool(self.carried.woken)
            return detect(obj, setting.snapshots, finalizer=setting.finalizer, initial=initial, snapshot=known)
        blocking = Blocking.of(obj, setting.finalizer)
        return Detection(NOOP if not blocking.is_deleted else DELETE if blocking.is_ours else FREE)

    def _make_situation(self, detection: Detection) -> Situation:
        """Collect all that is known of the object."""
        setting, carried, obj = self._setting, self.carried, self.obj
        unsaved, saved, memory = self.unsaved, carried.saved, self.memory
        now = setting.now()
        remembered = {} if saved is None else saved.states
        return Situation(
            key=obj.head.key,
            detection=detection,
            blocking=Blocking.of(obj, setting.finalizer),
            saved=SavedStates(
                setting.persistence.progress_storage,
                self.body,
                now,
                remembered if unsaved is None else {**remembered, **unsaved.states},
                setting.candidates.ids,
                obj,
            ),
            now=now,
            unsaved=None if unsaved is None else unsaved.states.keys(),
            called=carried.called,
            woken=carried.woken,
            digest=None if saved is None else saved.digest,
            errors=carried.errors,
            removals=memory.removals,
            is_restoring=self.is_lost and memory.losses < MAX_RESTORATIONS,
            background=memory.background,
        )

    def choose(self, reason: Reason) -> Choice:
        """Select the handlers for the reason."""
        candidates = self._setting.candidates
        if not candidates.is_filtered:
            return candidates.select_all(reason, initial=self.carried.initial, woken=self.carried.woken or ())
        if not self._setting.detects_changes:
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
        return ChangingCause(
            logger=self.logger,
            memo=self._setting.defer_memo(self.situation.key),
            indices=self._setting.indices,
            resource=self._setting.resource,
            body=self.body,
            patch=self.patch,
            reason=reason,
            initial=self.carried.initial,
            woken=self.carried.woken or (),
            get_change=self.situation.detection.get_change,
        )

    def get_background_cause(self, reason: Reason) -> ResourceCause:
        """Get what the filters & delays of daemons & timers get: of what has changed, too, if that is known."""
        if self._setting.detects_changes:
            return self.get_cause(reason)
        return ResourceCause(
            logger=self.logger,
            memo=self._setting.recall_memo(self.situation.key),
            indices=self._setting.indices,
            resource=self._setting.resource,
            body=self.body,
            patch=self.patch,
        )

    def find_baseline(self) -> bytes:
        """Get the state as of the beginning of the creation, also if it was begun before the operator has started."""
        saved, snapshot = self.situation.saved, self.situation.detection.snapshot
        known = None if saved.is_blank else saved.find_baseline(self._setting.candidates.ids)
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
