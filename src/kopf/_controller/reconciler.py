"""
The reconciler: makes passes over an object, from its state, through the decision and the handlers, to one patch.

A pass takes the object in its current state, and returns its new state with the time to continue. It also returns
results that could not be saved; the next pass saves them first. The result or the failure of the pass determines the
next action for the object.
"""

from __future__ import annotations

import asyncio
import logging

from kopf._client.resources.patching import PatchConflict, PatchSuperseded
from kopf._controller.changes.decision import END, FINALIZER, PROGRESS, Plan, Saving, conclude, decide
from kopf._controller.changes.execution import Execution
from kopf._controller.changes.object_memory import Carried, ObjectMemory, Result, SavingFailure, Unsaved
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


class ReconcilePass(Record, eq=False):
    """One pass over one object."""

    _scope: ReconciliationScope
    _obj: KubeObject
    _carried: Carried
    _memory: ObjectMemory
    _writing: Writing | None = None

    @property
    def correction(self) -> Unsaved | None:
        """The states to save again, because the API has altered the changes by the handlers."""
        return None if self._writing is None else self._writing.correction

    @property
    def baseline(self) -> bytes | None:
        """The snapshot of the object as of the beginning of its creation; all later changes are updates."""
        return self._carried.baseline if self._writing is None else self._writing.baseline

    @property
    def is_saving(self) -> bool:
        """Whether the object is being patched now, which must not be interrupted."""
        return self._writing is not None and self._writing.is_saving

    def collect_unsaved(self) -> Unsaved | None:
        """Return the unsaved results after a failure, so that they are neither lost nor repeated."""
        return self._carried.unsaved if self._writing is None else self._writing.collect_unsaved()

    async def run(self) -> Result:
        """Make the pass. Raises :class:`SavingFailure` if the object could not be patched."""
        scope = self._scope
        observed = Observation(scope, self._obj, self._carried, self._memory)
        self._note(observed)
        situation = observed.situation
        plan = decide(situation, observed.choose)
        scope.runtime.observer.pass_decided(scope.resource, situation.key, self._obj, situation.detection, plan)
        writing = self._writing = Writing(scope, observed, plan)
        for error in plan.skipped:
            observed.logger.error("%s. The handler is skipped.", error)
        is_matched = scope.background is not None and not plan.is_background_kept
        if is_matched and not scope.runtime.pause.is_held(situation.key):
            self._match_background(observed, plan)
        now, delay = observed.situation.now, 0.0
        if plan.call:
            execution = Execution(scope.runtime, plan.progress, plan.seen, scope.user_code)
            now = await execution.execute_pending(observed.get_cause(plan.reason), plan.call, now)
            delay, plan.unfit = execution.delay, execution.unfit
        conclude(plan, observed.situation, now)
        if plan.resumed:
            is_for_nobody = self._carried.initial and plan.saving is FINALIZER
            self._memory.is_unresumed = is_for_nobody and any(item.initial for item in scope.candidates.changing)
        if delay and plan.requeue_after is not None:
            plan.requeue_after = max(plan.requeue_after, delay)
        if scope.candidates.model is not None and plan.saving in (END, PROGRESS) and not plan.unfit:
            self._withdraw_mismatch(scope.candidates.model, observed, plan)
        if plan.saving is END:
            writing.report()
        self._note_finalizer(observed, plan)
        try:
            if not scope.detects_changes:  # nothing is kept on the object but the finalizer
                return await writing.save(observed.patch)
            match plan.saving:
                case Saving.END:
                    return await writing.finish()
                case Saving.PROGRESS:
                    return await writing.save_progress()
                case Saving.FINALIZER:
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

    def _match_background(self, observed: Observation, plan: Plan) -> None:
        """Bring the daemons and timers of the object in line with its current state."""
        manager, memory = self._scope.background, self._memory
        if manager is None:
            return
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
        if plan.is_required:
            memory.removals = 0
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

    def __init__(self, scope: ReconciliationScope, objects: TrackedObjects) -> None:
        self._scope = scope
        self._objects = objects
        self._observer = scope.runtime.observer

    async def reconcile(self, tracked: TrackedObject, state: ObjectState) -> None:
        """Handle the pending state. All errors are reported, and delay the next pass."""
        before = state.on_start()
        obj: KubeObject | None = before
        error: BaseException | None = None
        delay: float | None = None
        observer, resource = self._observer, self._scope.resource
        started = observer.clock()
        observer.pass_begun(resource, tracked.key, before)
        try:
            result = await self._make_pass(tracked, state, before)
        except asyncio.CancelledError as e:
            error = e
            raise
        except SavingFailure as e:
            if e.obj is not before:
                self._follow(tracked, state, before, e.obj)
            obj, error = e.obj, e.__cause__ or e
            delay = self._postpone(tracked, state, e.obj, error)
        except Exception as e:
            error = e
            delay = self._postpone(tracked, state, before, e)
        else:
            obj, error, delay = result.obj, result.error, result.requeue_after
            if result.changed and obj is not None:
                self._follow(tracked, state, before, obj)
            state.on_result(result, asyncio.get_running_loop().time())
            if error is None:
                tracked.complaint = None
            elif obj is not None and state.pending is None:
                delay = self._postpone(tracked, state, obj, error)
        finally:
            observer.pass_ended(resource, tracked.key, obj, error, delay, started)
            error = None  # its traceback refers to this frame: avoid a circle of references

    async def _make_pass(self, tracked: TrackedObject, state: ObjectState, obj: KubeObject) -> Result:
        """
        Make the pass over the object in this state. Raises the errors of the API and of the framework.

        Unfinished and unsaved results stay in the memory of the state, for the next pass.
        """
        problem, memory = obj.pruned, state.memory
        if not problem:
            # A copy: changes by the stream belong to the next pass.
            reconciliation = ReconcilePass(self._scope, obj, replace(memory), tracked.memory)
            tracked.reconciliation = reconciliation
            memory.saved = None
            try:
                result = await reconciliation.run()
            except Exception as e:
                memory.unsaved = reconciliation.collect_unsaved()
                memory.baseline = reconciliation.baseline
                if not isinstance(e, UnreadableError):
                    raise
                problem = str(e)  # it is decoded only when it is first read
            else:
                memory.unsaved = reconciliation.correction
                memory.baseline = None if result.resumed else reconciliation.baseline
                tracked.stub = None
                return result
            finally:
                tracked.reconciliation = None
        return await release_unreadable(self._scope, tracked, obj, problem)

    def _follow(self, tracked: TrackedObject, state: ObjectState, before: KubeObject, after: KubeObject) -> None:
        """Accept the new state after our own write, unless an even newer one has come."""
        is_latest = state.on_response(before, after, asyncio.get_running_loop().time())
        if is_latest:
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
