"""
Observation: the current state of an object, with all facts about it, and with the arguments of its handlers.

It calls, saves, and counts nothing. So explanations begin with it, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Protocol

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
from kopf._controller.changes.handler_states import SavedStates
from kopf._controller.changes.object_memory import Carried, ObjectMemory
from kopf._controller.changes.progress import find_seen
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import Candidates, select, select_background
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
"""The snapshot of an unknown state: compared to it, everything has changed."""


class Setting(Protocol):
    """The facts about the resource and the operator that an observation needs."""

    resource: Resource
    candidates: Candidates
    snapshots: Snapshots
    persistence: PersistenceSettings
    finalizer: str
    indices: Mapping[str, Any]
    detects_changes: bool
    """Whether any handler depends on changes of the object."""

    def now(self) -> datetime.datetime:
        """Return the current time."""

    def make_logger(self, body: Body) -> ObjectLogger:
        """Make the logger for the handlers; the argument is passed by its name."""

    def recall_memo(self, key: str) -> Any:
        """Return the memo of the object."""

    def defer_memo(self, key: str) -> Any:
        """Return the memo of the object, or a :class:`Deferred` that makes it on the first use."""


class Observation:
    """
    One object in one state. Raises :class:`UnreadableError` if the object cannot be decoded.

    Large because the decision, the handlers, and the writing need all these facts.
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
        detection = detected = self._detect(carried)
        unsaved = carried.unsaved
        if unsaved is not None and is_overtaken(detected, unsaved.reason):
            unsaved = None
        self.unsaved = unsaved
        """The earlier results to save before anything else."""
        self.is_handled_elsewhere = False
        """Whether the object is marked as handled in a state that this operator has not handled."""
        self.is_lost = False
        """Whether others have removed the last handled state from the object."""
        fingerprint = memory.fingerprint if unsaved is None else None
        if fingerprint is not None or memory.is_released:  # mostly, there is no memory of the object
            detection = recognise(detected, fingerprint, is_released=memory.is_released, last=memory.snapshot)
            is_other = fingerprint is not None and fingerprint != make_fingerprint(detected.snapshot)
            self.is_handled_elsewhere = detected.reason is NOOP and is_other
            self.is_lost = detected.reason is CREATE and detection.reason in (NOOP, UPDATE)
        # Not before the detection: the body reuses what the detection has decoded.
        self.body = body = Body(obj.for_users())
        self.logger = setting.make_logger(body=body)
        self.patch = Patch(None, body) if unsaved is None else unsaved.patch
        """The changes by the handlers."""
        self.situation = self._make_situation(detection)

    def _detect(self, carried: Carried) -> Detection:
        """Detect the change of the object, if any handlers depend on changes; otherwise, only a deletion."""
        setting, obj = self._setting, self.obj
        if setting.detects_changes:
            known = None if carried.saved is None else carried.saved.snapshot
            initial = carried.initial or bool(carried.woken)
            return detect(obj, setting.snapshots, finalizer=setting.finalizer, initial=initial, snapshot=known)
        blocking = Blocking.of(obj, setting.finalizer)
        return Detection(NOOP if not blocking.is_deleted else DELETE if blocking.is_ours else FREE)

    def _make_situation(self, detection: Detection) -> Situation:
        """Collect all facts about the object."""
        setting, carried, obj = self._setting, self.carried, self.obj
        unsaved, saved, memory = self.unsaved, carried.saved, self.memory
        now = setting.now()
        remembered = {} if saved is None else saved.states
        if unsaved is not None:
            remembered = {**remembered, **unsaved.states}
        storage = setting.persistence.progress_storage
        return Situation(
            key=obj.head.key,
            detection=detection,
            blocking=Blocking.of(obj, setting.finalizer),
            saved=SavedStates(storage, self.body, now, remembered, setting.candidates.ids, obj),
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
        """Return the cause for the handlers of changes, for this reason."""
        if self._cause is not None and self._cause.reason is reason:
            return self._cause
        setting, carried, detection = self._setting, self.carried, self.situation.detection
        is_known = carried.saved is not None and carried.saved.snapshot is not None
        if detection.change is None and not is_known:
            self.body.object.decode_content()  # if it cannot be decoded, fail now, and not in the middle of the pass
        self._cause = cause = ChangingCause(
            logger=self.logger,
            memo=setting.defer_memo(self.situation.key),
            indices=setting.indices,
            resource=setting.resource,
            body=self.body,
            patch=self.patch,
            reason=reason,
            initial=carried.initial,
            woken=carried.woken or (),
            get_change=detection.get_change,
        )
        return cause

    def get_background_cause(self, reason: Reason) -> ResourceCause:
        """Return the cause for the filters and delays of daemons and timers: with the change, if it is known."""
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
        """Return the state as of the beginning of the creation, even if it began before the operator has started."""
        saved, snapshot = self.situation.saved, self.situation.detection.snapshot
        known = None if saved.is_blank else saved.find_baseline(self._setting.candidates.ids)
        return snapshot if known is None else known

    def get_handled_snapshot(self, plan: Plan, baseline: bytes) -> bytes:
        """
        Return the state that the handlers have really seen: changes during a creation are updates after it.

        If a handler has seen a state between the beginning and the end of the creation, their difference does not have
        all that it must see; so it is an update of everything. The same holds if the API has refused the beginning, and
        that is bigger than the actual state: it can be too big.
        """
        snapshot, saved, unsaved = self.situation.detection.snapshot, self.situation.saved, self.unsaved
        if plan.reason is not CREATE or (baseline == snapshot and saved.is_blank):
            return snapshot
        was_refused = unsaved is not None and unsaved.is_reported and unsaved.is_refused
        if was_refused and len(baseline) > len(snapshot):
            return EMPTY
        seen = {*find_seen(plan.choice.accompanying, saved)} if not saved.is_blank else set()
        if seen and not seen <= {plan.seen.get_whole(), SeenStates(CREATE, baseline).get_whole()}:
            return EMPTY
        return baseline
