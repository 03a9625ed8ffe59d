"""
Reconciliation: one pass over one object, from its state, through the decision and the handlers, to one patch.

It takes the object as it is and gives back the object as it has become, with a hint when to continue. What
cannot be saved is given back, too, and is the first thing to do in the next pass.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from kopf._client.errors import APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchSuperseded, patch_object
from kopf._controller.background.spawning import Background
from kopf._controller.background.stopping import DaemonStoppingReason
from kopf._controller.changes.decision import (
    MAX_RESTORATIONS,
    Choice,
    Plan,
    Saving,
    Situation,
    conclude,
    decide,
    is_overtaken,
    make_fingerprint,
    recognise,
)
from kopf._controller.changes.detection import Detection, detect
from kopf._controller.changes.execution import TITLES, Execution
from kopf._controller.changes.finalizer import Blocking
from kopf._controller.changes.own_changes import OwnChanges
from kopf._controller.changes.progress import Progress, count, find_seen
from kopf._controller.changes.saved_states import SavedStates
from kopf._controller.changes.saving import (
    Carried,
    Known,
    SavingFailure,
    Step,
    Unsaved,
    check_status,
    has_only_traces,
    note_finalizer,
    note_removal,
)
from kopf._controller.changes.selection import Candidates, select
from kopf._controller.changes.superseding import Superseding
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ChangingCause
from kopf._handlers.registry import HandlersOfResource
from kopf._logging.loggers import ObjectLogger
from kopf._storage.snapshots import Snapshots
from kopf._values.bodies import Body
from kopf._values.codec import NestingError
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch, PatchRequest, thaw
from kopf._values.reasons import Reason
from kopf._values.records import replace
from kopf._values.resources import Resource

_PASSING_ERRORS = (APIServerError, APITooManyRequestsError, APINetworkError)
"""The next attempts can succeed with the same changes; with all other errors, they can only in another state."""

_MAX_REFUSALS = 3
"""How many times in a row the last changes of a deleted object can be refused, until it is released without them."""

_EMPTY = b"{}"


class Scope:
    """What all reconciliations of the objects of one resource have in common."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: HandlersOfResource,
        *,
        background: Background | None = None,
        handled: HandledMemory | None = None,
        user_code: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        persistence = runtime.settings.persistence
        self.runtime = runtime
        self.resource = resource
        self.candidates = Candidates(handlers)
        self.background = background
        self.handled = handled if handled is not None else HandledMemory()
        self.user_code = user_code
        self.persistence = persistence
        self.finalizer = persistence.finalizer
        self.snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage, handlers.extra_fields)


class Reconciliation:
    """
    One pass over one object.

    It has more attributes than other classes have: it is the only place where everything about the pass is together,
    while those who decide, compare, and execute have nothing of their own.
    """

    __slots__ = (
        "_body",
        "_carried",
        "_cause",
        "_is_refused",
        "_is_reported",
        "_logger",
        "_obj",
        "_patch",
        "_plan",
        "_scope",
        "_situation",
        "_unsaved",
        "baseline",
        "correction",
        "is_saving",
    )

    def __init__(self, scope: Scope, obj: KubeObject, carried: Carried) -> None:
        self._scope = scope
        self._obj = obj
        self._carried = carried
        self._body: Body
        self._logger: ObjectLogger
        self._patch: Patch
        self._unsaved = carried.unsaved
        self._is_reported = carried.unsaved is not None and carried.unsaved.is_reported
        self._is_refused = False
        self._cause: ChangingCause | None = None
        self._situation: Situation
        self._plan: Plan | None = None
        self.correction: Unsaved | None = None
        """What is to be saved anew, as the API has not kept the changes by the handlers as they are."""
        self.baseline = carried.baseline
        """The snapshot of the object as of the beginning of its creation; all later changes are updates."""
        self.is_saving = False
        """Whether the object is being patched right now, which is not to be interrupted."""

    async def run(self) -> Step:
        """Do what is to be done now. Raises :class:`SavingFailure` if the object could not be patched."""
        try:
            return await self._run()
        except PatchSuperseded as e:
            self._logger.info(
                "The object was handled by somebody else meanwhile, e.g. by another operator. What was done here is "
                "not saved; going on from its fresh state."
            )
            return Step(e.obj, changed=True)

    async def _run(self) -> Step:
        scope = self._scope
        situation = self._situation = self._observe()
        plan = self._plan = decide(situation, self._choose)
        if plan.reason is Reason.CREATE and self.baseline is None:
            self.baseline = self._find_baseline(plan)
        for error in plan.skipped:
            self._logger.error("%s. The handler is skipped.", error)
        if scope.background is not None and not plan.is_background_kept:
            self._sync_background(plan)
        now = situation.now
        if plan.call:
            execution = Execution(scope.runtime, plan.progress, plan.seen, user_code=scope.user_code)
            await execution.execute_pending(self._get_cause(plan.reason), plan.call)
            now = scope.runtime.clock.now()
        conclude(plan, situation, now)
        if plan.saving is Saving.END and plan.called and not self._is_reported:
            self._report(plan)
        note_finalizer(plan, scope.handled, situation.key, finalizer=scope.finalizer, logger=self._logger)
        match plan.saving:
            case Saving.NOTHING:
                if plan.choice.accompanying:
                    self._logger.debug("Deletion, but we are done with it, and we do not care.")
                    self._logger.debug("Handling cycle is finished, waiting for new changes.")
                return Step(self._obj, resumed=True)
            case Saving.FINALIZER:
                if plan.finalizer is None:
                    return Step(self._obj, resumed=plan.resumed, error=plan.error)
                return await self._save(plan, Patch())
            case Saving.PROGRESS:
                return await self._save_progress(plan)
            case Saving.END:
                return await self._finish(plan)

    def _observe(self) -> Situation:
        """Collect all that is known of the object."""
        scope, carried, obj = self._scope, self._carried, self._obj
        key = obj.head.key
        detected = detect(obj, scope.snapshots, finalizer=scope.finalizer, initial=carried.initial)
        if self._unsaved is not None and is_overtaken(detected, self._unsaved.reason):
            self._unsaved, self._is_reported = None, False
        self._begin()
        unsaved, known = self._unsaved, carried.known
        memory = scope.handled.recall(key) if unsaved is None else None
        detection = recognise(detected, memory, is_released=scope.handled.is_released(key))
        now = scope.runtime.clock.now()
        remembered = {} if known is None else known.states
        return Situation(
            key=key,
            detection=detection,
            blocking=Blocking.of(obj, scope.finalizer),
            saved=SavedStates(
                scope.persistence.progress_storage,
                self._body,
                now,
                obj=obj,
                remembered=remembered if unsaved is None else {**remembered, **unsaved.states},
                keys=scope.candidates.ids,
            ),
            now=now,
            unsaved=None if unsaved is None else unsaved.states.keys(),
            called=carried.called,
            digest=None if known is None else known.digest,
            errors=carried.errors,
            removals=scope.handled.get_removals(key),
            is_restoring=self._is_lost(detected, detection),
            background=scope.background,
        )

    def _begin(self) -> None:
        """Make what the users get: not before we look at the object, as then it is split only once."""
        self._body = Body(self._obj.for_users())
        self._logger = ObjectLogger(body=self._body, settings=self._scope.runtime.settings)
        self._patch = Patch(body=self._body) if self._unsaved is None else self._unsaved.patch

    def _is_lost(self, detected: Detection, detection: Detection) -> bool:
        """Tell if the last handled state was removed by others from the object, and is to be restored there."""
        if detected.reason is not Reason.CREATE or detection.reason not in (Reason.NOOP, Reason.UPDATE):
            return False
        losses = self._scope.handled.count_loss(self._obj.head.key)
        if losses == 1:
            self._logger.warning(
                "The last handled configuration of the object was removed by somebody else. It is not considered as "
                "new, since it was already handled here. After a restart, it will be."
            )
        return losses <= MAX_RESTORATIONS

    def _choose(self, reason: Reason) -> Choice:
        candidates = self._scope.candidates
        if not candidates.is_filtered:
            return candidates.select_all(reason, initial=self._carried.initial)
        return select(candidates, self._get_cause(reason))

    def _get_cause(self, reason: Reason) -> ChangingCause:
        if self._cause is None or self._cause.reason is not reason:
            self._cause = self._make_cause(reason, self._situation.detection)
        return self._cause

    def _make_cause(self, reason: Reason, detection: Detection) -> ChangingCause:
        runtime = self._scope.runtime
        change = detection.get_change()
        return ChangingCause(
            logger=self._logger,
            memo=runtime.memos.recall(self._obj.head.key),
            indices=runtime.indices,
            resource=self._scope.resource,
            body=self._body,
            patch=self._patch,
            reason=reason,
            initial=self._carried.initial,
            old=change.old,
            new=change.new,
            diff=change.diff,
        )

    def _find_baseline(self, plan: Plan) -> bytes:
        """
        Get the state as of the beginning of the creation.

        If the operator was restarted in the middle, and some handlers have seen another state before that, then that
        one is not known anymore. With an empty one instead, the creation is followed by an update of everything.
        """
        seen = {*find_seen(plan.choice.accompanying, self._situation.saved)}
        return _EMPTY if seen and seen != {plan.seen.get_whole()} else self._situation.detection.snapshot

    def _sync_background(self, plan: Plan) -> None:
        background, situation = self._scope.background, self._situation
        if background is None:
            return
        if situation.blocking.is_deleted:
            background.stop_all_of(situation.key, DaemonStoppingReason.RESOURCE_DELETED)
        else:
            unknown = {handler.id for handler in plan.choice.failures}
            background.match(self._get_cause(plan.reason), plan.spawning, unknown=unknown)

    def collect_unsaved(self) -> Unsaved | None:
        """After a failure, give what is left to be saved, so that it is not lost, and not done again."""
        if self._plan is None:
            return self._unsaved
        states = self._plan.progress.unsaved
        if not self._patch and not states:
            return None
        return Unsaved(
            self._plan.reason, states, self._patch, is_reported=self._is_reported, is_refused=self._is_refused
        )

    def log_gone(self) -> None:
        """Say goodbye to an object that exists no more, if any handlers were for it."""
        self._begin()
        candidates = self._scope.candidates
        cause = self._make_cause(Reason.GONE, Detection(Reason.GONE))
        if not candidates.is_filtered or select(candidates, cause).accompanying:
            self._logger.debug("Deleted, really deleted, and we are notified.")

    async def _save_progress(self, plan: Plan) -> Step:
        """Save what was done so far: the handling goes on later."""
        outgoing = self._make_outgoing_patch()
        try:
            stored, expected = self._make_own_changes(plan).expect(self._patch, plan.progress)
        except NestingError as e:  # of the patch, not of the object
            self._is_refused = True
            raise SavingFailure(self._obj) from e
        stored.store(outgoing)
        known = self._carried.known
        if plan.reason is Reason.DELETE and (known is None or known.reason is not plan.reason):
            stored.saved.drop_outdated(self._scope.candidates.changing, plan.reason, stored, outgoing)
        step = await self._save(plan, outgoing)
        if step.obj is not None:
            step = replace(step, progress=self._remember(plan, stored, expected, outgoing, step.obj))
        if step.delay is not None and step.delay > 0 and not step.changed:
            self._logger.debug("Sleeping for %s seconds for the delayed handlers.", step.delay)
        return step

    def _make_own_changes(self, plan: Plan) -> OwnChanges:
        return OwnChanges(self._scope.snapshots, self._obj, plan.seen, snapshot=self._situation.detection.snapshot)

    def _remember(
        self, plan: Plan, stored: Progress, expected: bytes | None, outgoing: Patch, obj: KubeObject
    ) -> Known:
        """Note what is now on the object, in case that nobody else changes it before the next pass."""
        own = self._make_own_changes(plan)
        stored.note_saved()
        if expected is not None:
            expected = own.compare(expected, obj, stored)
            if states := stored.unsaved:
                self.correction = Unsaved(plan.reason, states, Patch())
        plan.progress = stored
        self.baseline = own.carry_over(self.baseline, expected)
        is_same = (
            expected is None
            and not self._scope.snapshots.extra_fields
            and plan.seen.whole is not None
            and has_only_traces(self._obj, obj, outgoing)
        )
        return Known(plan.reason, dict(stored), plan.seen.whole if is_same else None)

    def _make_outgoing_patch(self) -> Patch:
        """Separate what users want from what we add to it, so that it can be composed anew if it cannot be saved."""
        patch = self._patch
        if not patch:
            return Patch()
        if self._scope.snapshots.is_plain and self._situation.saved.is_absent and "metadata" not in patch:
            return Patch(patch, fns=patch.fns)  # nothing of what is there is going to be modified by us
        return Patch(thaw(patch), fns=patch.fns)

    def _report(self, plan: Plan) -> None:
        """Say once how the handling has ended."""
        self._is_reported = True
        if self._logger.isEnabledFor(logging.INFO):
            counts = count(plan.called, plan.progress)
            self._logger.info("%s is processed: %d succeeded; %d failed.", TITLES[plan.reason], *counts)

    async def _finish(self, plan: Plan) -> Step:
        """End the handling of this change: all of its handlers are done, or there were none."""
        scope, key = self._scope, self._situation.key
        if plan.reason is Reason.DELETE:
            self._drop_refused_wishes()
        outgoing = self._make_outgoing_patch()
        if not self._situation.blocking.is_last:
            plan.progress.purge(scope.candidates.changing, outgoing)  # also of those that have matched before
        snapshot = self._situation.detection.snapshot
        handled = self._get_handled_snapshot(plan)
        if plan.is_handled:
            scope.snapshots.store(handled, body=self._body, patch=outgoing)
        if plan.reason is Reason.NOOP and not outgoing and plan.finalizer is None:
            self._logger.debug("Something has changed, but we are not interested (the essence is the same).")
        step = await self._save(plan, outgoing)
        if plan.is_handled:
            scope.handled.remember(key, make_fingerprint(handled))
        if not step.changed:
            self._logger.debug("Handling cycle is finished, waiting for new changes.")
        elif handled == snapshot and self._has_only_our_traces(step.obj, outgoing):
            self._logger.debug("Handling cycle is finished, waiting for new changes.")
            return replace(step, settled=True)
        return step

    def _drop_refused_wishes(self) -> None:
        """Let nothing hold the deletion forever: not even what the deletion handlers want, but the API does not."""
        unsaved, patch = self._unsaved, self._patch
        if patch and unsaved is not None and unsaved.is_refused and self._carried.errors >= _MAX_REFUSALS:
            wishes = dict(patch) or "those by the transformation functions"
            self._logger.error("The object is released without the changes that could not be made: %r", wishes)
            patch.clear()
            patch.fns.clear()

    def _has_only_our_traces(self, obj: KubeObject | None, outgoing: Patch) -> bool:
        patch = self._patch
        if obj is None or patch.fns or patch.keys() - {"status"} or self._scope.snapshots.extra_fields:
            return False
        return has_only_traces(self._obj, obj, outgoing)

    def _get_handled_snapshot(self, plan: Plan) -> bytes:
        """
        What the handlers have really seen: in a creation, other changes meanwhile are updates after it.

        If that was refused and is bigger than the actual state (it can be too big), it is an update of everything.
        """
        snapshot, baseline = self._situation.detection.snapshot, self.baseline
        if plan.reason is not Reason.CREATE or baseline is None or baseline == snapshot:
            return snapshot
        was_refused = self._unsaved is not None and self._unsaved.is_reported and self._unsaved.is_refused
        return _EMPTY if was_refused and len(baseline) > len(snapshot) else baseline

    async def _save(self, plan: Plan, outgoing: Patch) -> Step:
        """Bring the changes to the object. Raises :class:`SavingFailure` with what is left to be saved."""

        if not outgoing and plan.finalizer is None:
            return Step(self._obj, False, plan.requeue_after, resumed=plan.resumed, error=plan.error)
        latest = self._obj

        def note(request: PatchRequest, obj: KubeObject) -> None:
            nonlocal latest
            latest = obj
            if request.subresource == "status" and isinstance(request.changes, dict):
                # It is there, even if the rest is refused.
                status = Patch({"status": self._patch.pop("status", {})})
                own = self._make_own_changes(plan)
                plan.progress, expected = own.expect(status, plan.progress)
                self.baseline = own.carry_over(self.baseline, expected)

        scope = self._scope
        self.is_saving = True
        try:
            obj = await patch_object(
                scope.runtime.api,
                scope.resource,
                self._obj,
                outgoing,
                finalizer=scope.finalizer,
                change=plan.finalizer,
                on_saved=note,
                is_superseded=Superseding(scope.persistence, scope.candidates.changing, self._obj, outgoing),
                logger=self._logger,
            )
        except PatchSuperseded:
            raise
        except Exception as e:
            self._is_refused = not isinstance(e, _PASSING_ERRORS)
            raise SavingFailure(latest) from e
        finally:
            self.is_saving = False
        if obj is None:
            self._logger.debug("Patching was skipped: the object does not exist anymore.")
        elif "status" in outgoing:
            check_status(scope.runtime, scope.resource, obj, outgoing, self._logger)
        if plan.finalizer is FinalizerChange.REMOVE:
            note_removal(scope.handled, self._obj)
        if obj is None:
            return Step(None, resumed=True)
        is_changed = obj.head.resourceVersion != self._obj.head.resourceVersion
        return Step(obj, is_changed, plan.requeue_after, resumed=plan.resumed, error=plan.error)
