"""
The reconciler: makes passes over an object, from its state, through the decision and the handlers, to one patch.

A pass takes the object in its current state, and returns its new state with the time to continue. It also returns
results that could not be saved; the next pass saves them first. The result or the failure of the pass determines the
next action for the object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kopf._client.resources.patching import PatchConflict, PatchSuperseded
from kopf._controller.changes.decision import END, FINALIZER, PROGRESS, Plan, conclude, decide
from kopf._controller.changes.execution import Execution
from kopf._controller.changes.object_memory import Carried, ObjectMemory, Result, SavingFailure
from kopf._controller.changes.observation import Observation
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.selection import could_match
from kopf._controller.changes.writing import Writing
from kopf._controller.failure_reports import report_failure
from kopf._controller.object_state import ObjectState
from kopf._controller.tracked_objects import TrackedObject, TrackedObjects
from kopf._controller.unreadable import release_unreadable
from kopf._logging.loggers import ObjectLogger
from kopf._values.codec import NestingError, UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.patches import ADD, REMOVE, Patch
from kopf._values.reasons import DELETE, Reason
from kopf._values.records import Record, replace
from kopf._values.selectors import ResourceModel

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background  # most resources have neither daemons nor timers


class ReconcilePass(Record, eq=False):
    """One pass over one object."""

    _scope: ReconciliationScope
    _obj: KubeObject
    _carried: Carried
    _memory: ObjectMemory
    _writing: Writing | None = None

    @property
    def is_saving(self) -> bool:
        """Whether the object is being patched now, which must not be interrupted."""
        return self._writing is not None and self._writing.is_saving

    def keep_unfinished(self, memory: Carried) -> None:
        """Keep the unsaved results after a failure, so that they are neither lost nor repeated."""
        if (writing := self._writing) is not None:
            memory.unsaved, memory.baseline = writing.collect_unsaved(), writing.baseline

    def keep_finished(self, memory: Carried, result: Result) -> None:
        """Keep the results that the next pass needs."""
        if (writing := self._writing) is not None:
            baseline = None if result.resumed else writing.baseline
            if memory.unsaved is not writing.correction or memory.baseline is not baseline:
                memory.unsaved, memory.baseline = writing.correction, baseline

    async def run(self) -> Result:
        """
        Make the pass.

        Raises :class:`SavingFailure` if the object could not be patched, and :class:`UnreadableError` if it cannot be
        decoded: some parts are decoded only when they are first read.
        """
        if self._obj.pruned:
            raise UnreadableError(self._obj.pruned)
        scope = self._scope
        observed = Observation(scope, self._obj, self._carried, self._memory)
        if observed.unsaved is not None or observed.is_handled_elsewhere or observed.is_lost:
            self._note(observed)
        situation = observed.situation
        plan = decide(situation, observed.choose)
        runtime = scope.runtime
        runtime.observer.pass_decided(scope.resource, situation.key, self._obj, situation.detection, plan)
        writing = self._writing = Writing(scope, observed, plan)
        for error in plan.skipped:
            observed.logger.error("%s. The handler is skipped.", error)
        if scope.background is not None and not plan.is_background_kept and not runtime.pause.is_held(situation.key):
            self._match_background(scope.background, observed, plan)
        now, delay = situation.now, 0.0
        if plan.call:
            execution = Execution(runtime, plan.progress, plan.seen, scope.user_code, situation.key)
            now = await execution.execute_pending(observed.get_cause(plan.reason), plan.call, now)
            delay = execution.delay
            if execution.unfit:
                plan.unfit = execution.unfit
        conclude(plan, situation, now)
        if plan.resumed:
            is_for_nobody = plan.saving is FINALIZER and self._carried.initial
            if is_for_nobody or self._memory.is_unresumed:
                is_kept = is_for_nobody and any(item.initial for item in scope.candidates.changing)
                self._memory.is_unresumed = is_kept
        if delay and plan.requeue_after is not None:
            plan.requeue_after = max(plan.requeue_after, delay)
        if scope.candidates.model is not None and plan.saving in (END, PROGRESS) and not plan.unfit:
            self._withdraw_mismatch(scope.candidates.model, observed, plan)
        if plan.called and plan.saving is END:
            writing.report(plan.called)
        if plan.is_required:
            self._memory.removals = 0
        if plan.finalizer is not None or plan.is_contested:
            self._note_finalizer(observed, plan)
        try:
            if not scope.detects_changes:  # nothing is kept on the object but the finalizer
                return await writing.save(observed.patch)
            if plan.saving is END:
                return await writing.finish()
            if plan.saving is PROGRESS:
                return await writing.save_progress()
            if plan.saving is FINALIZER:
                return await writing.save(Patch())
        except PatchSuperseded as e:
            observed.logger.info(
                "Something else has handled the object meanwhile, e.g. another operator. The results of this pass are "
                "not saved; continuing from the fresh state."
            )
            scope.rivals.note(e.obj)
            return Result(e.obj, changed=True)
        if plan.choice.accompanying:
            observed.logger.debug("Deletion, but we are done with it, and we do not care.")
            observed.logger.debug("Handling cycle is finished, waiting for new changes.")
        return Result(self._obj, resumed=True)

    def _withdraw_mismatch(self, model: ResourceModel, observed: Observation, plan: Plan) -> None:
        """Withdraw the condition about a mismatch if the object fits its model again."""
        from kopf._handlers.conditions import withdraw_mismatch  # most operators have none

        if not observed.situation.blocking.is_deleted:
            withdraw_mismatch(model, observed.patch, observed.body, plan.choice.accompanying)

    def _note(self, observed: Observation) -> None:
        """Note facts about other writers of the object."""
        unsaved, memory = observed.unsaved, self._memory
        if unsaved is not None and unsaved.patch.fns:
            unsaved.patch.deliveries.settle(self._obj, self._obj.head.resourceVersion)
        if observed.is_handled_elsewhere:
            self._scope.rivals.note(self._obj)
        if observed.is_lost:
            memory.losses += 1
            if memory.losses == 1:
                observed.logger.warning(
                    "Something else has removed the last handled configuration of the object. The object is not "
                    "treated as new, because it was already handled here. After a restart, it will be."
                )

    def _match_background(self, manager: Background, observed: Observation, plan: Plan) -> None:
        """Bring the daemons and timers of the object in line with its current state."""
        memory = self._memory
        if observed.situation.blocking.is_deleted:
            if memory.background is not None:
                memory.background.stop_as_deleted()
            return
        if memory.background is None and plan.spawning:
            memory.background = manager.begin(observed.body.object)
        if memory.background is not None:
            unknown = {handler.id for handler in plan.choice.failures}
            cause = observed.get_background_cause(plan.reason)
            manager.match(memory.background, cause, plan.spawning, unknown=unknown)

    def _note_finalizer(self, observed: Observation, plan: Plan) -> None:
        """Log the change of the finalizer, and count facts for the next decisions."""
        logger, memory, name = observed.logger, self._memory, self._scope.finalizer
        if plan.finalizer is ADD:
            logger.debug("Adding the finalizer, thus preventing the actual deletion.")
        elif plan.finalizer is REMOVE and plan.saving is END and plan.reason is DELETE:
            logger.debug("Removing the finalizer, thus allowing the actual deletion.")
        elif plan.finalizer is REMOVE:
            logger.debug("Removing the finalizer, as there are no handlers requiring it.")
        elif plan.is_contested:
            memory.removals += 1  # so that it is not logged again for this object
            logger.warning(
                "This operator does not need the finalizer %r, but something else puts it back, so it stays. "
                "If that is another operator, give each its own finalizer in settings.persistence.finalizer.",
                name,
            )

    def log_gone(self) -> None:
        """Log that the object does not exist anymore, if any handlers matched it."""
        observed = Observation(self._scope, self._obj, self._carried, self._memory)
        if observed.choose(Reason.GONE).accompanying:
            observed.logger.debug("Deleted, really deleted, and we are notified.")


class Reconciler:
    """Handles the objects of one resource, one state of one object at a time."""

    def __init__(self, scope: ReconciliationScope, objects: TrackedObjects, *, go_on: Callable[[str], bool]) -> None:
        self._scope = scope
        self._objects = objects
        self._go_on = go_on
        self._observer = scope.runtime.observer

    async def reconcile(self, tracked: TrackedObject, state: ObjectState) -> None:
        """Handle the pending state. All errors are reported, and delay the next pass."""
        before, memory = state.on_start(), state.memory
        obj: KubeObject | None = before
        error: BaseException | None = None
        delay: float | None = None
        observer, resource = self._observer, self._scope.resource
        started = observer.clock()
        observer.pass_begun(resource, tracked.key, before)
        # A copy of the memory: changes by the stream belong to the next pass.
        current = tracked.reconciliation = ReconcilePass(self._scope, before, replace(memory), tracked.memory)
        if memory.saved is not None:
            memory.saved = None
        try:
            try:
                result = await current.run()
            except UnreadableError as e:
                current.keep_unfinished(memory)
                result = await release_unreadable(self._scope, tracked, before, str(e))
            else:
                current.keep_finished(memory, result)
                if tracked.stub is not None:
                    tracked.stub = None
        except asyncio.CancelledError as e:
            error = e
            if not self._go_on(tracked.key):
                raise
            current.keep_unfinished(memory)
            delay = self._postpone(tracked, state, before, e)
        except SavingFailure as e:
            current.keep_unfinished(memory)
            if e.obj is not before:
                self._follow(tracked, state, before, e.obj, asyncio.get_running_loop().time())
            obj, error = e.obj, e.__cause__ or e
            delay = self._postpone(tracked, state, e.obj, error)
        except Exception as e:
            current.keep_unfinished(memory)
            error = e
            delay = self._postpone(tracked, state, before, e)
        else:
            obj, error, delay = result.obj, result.error, result.requeue_after
            now = asyncio.get_running_loop().time()
            if result.changed and obj is not None:
                self._follow(tracked, state, before, obj, now)
            state.on_result(result, now)
            if error is None:
                if tracked.complaint is not None:
                    tracked.complaint = None
            elif obj is not None and state.pending is None:
                delay = self._postpone(tracked, state, obj, error)
        finally:
            tracked.reconciliation = None
            observer.pass_ended(resource, tracked.key, obj, error, delay, started)
            error = None  # its traceback refers to this frame: avoid a circle of references

    def _follow(
        self, tracked: TrackedObject, state: ObjectState, before: KubeObject, after: KubeObject, now: float
    ) -> None:
        """Accept the new state after our own write, unless an even newer one has come."""
        if state.on_response(before, after, now) and self._objects.has_readers:
            self._objects.refresh(tracked, after)

    def _postpone(
        self, tracked: TrackedObject, state: ObjectState, obj: KubeObject, error: BaseException
    ) -> float | None:
        """Delay the next pass after an error of the framework or of the API; return the delay in seconds."""
        now = asyncio.get_running_loop().time()
        delay = state.on_failure(obj, now, is_conflict=isinstance(error, PatchConflict))
        is_unsaved = state.memory.unsaved is not None
        report_failure(self._scope, tracked, obj, error, delay=delay, is_unsaved=is_unsaved)
        return delay

    def log_gone(self, obj: KubeObject) -> None:
        """Log that the object does not exist anymore, if it was handled."""
        scope = self._scope
        logger = ObjectLogger(body=obj, settings=scope.runtime.settings)
        if logger.isEnabledFor(logging.DEBUG) and could_match(scope.candidates.changing, obj.head):
            try:
                ReconcilePass(scope, obj, Carried(), ObjectMemory()).log_gone()
            except NestingError:  # it could be decoded before, with fewer calls on the stack
                logger.debug("Deleted, but it is nested too deeply to tell if any handlers were for it.")
            except Exception:  # of the filters
                logger.exception("The deletion could not be handled.")
