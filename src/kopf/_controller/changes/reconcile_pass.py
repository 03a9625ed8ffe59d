"""
One reconcile pass over one object, from its state, through the decision and the handlers, to one patch.

It takes the object in its current state, and returns its new state with the time to continue. It also returns results
that could not be saved; the next pass saves them first.
"""

from __future__ import annotations

from kopf._client.resources.patching import PatchSuperseded
from kopf._controller.changes.carried import Carried, Result, Unsaved
from kopf._controller.changes.decision import END, FINALIZER, PROGRESS, Plan, Saving, conclude, decide
from kopf._controller.changes.execution import Execution
from kopf._controller.changes.observation import Observation
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.writing import Writing
from kopf._controller.object_memory import ObjectMemory
from kopf._values.objects import KubeObject
from kopf._values.patches import ADD, REMOVE, Patch
from kopf._values.reasons import DELETE, Reason
from kopf._values.records import Record
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
