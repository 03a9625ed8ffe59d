"""
Reconciliation: one pass over one object, from its state, through the decision and the handlers, to one patch.

It takes the object as it is and gives back the object as it has become, with a hint when to continue. What
cannot be saved is given back, too, and is the first thing to do in the next pass.
"""

from __future__ import annotations

from kopf._client.resources.patching import PatchSuperseded
from kopf._controller.changes.decision import END, Plan, Saving, conclude, decide
from kopf._controller.changes.execution import Execution
from kopf._controller.changes.saving import Carried, Result, Unsaved, note_finalizer
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.view import View
from kopf._controller.changes.writing import Writing
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from kopf._values.records import Record


class Reconciliation(Record, eq=False):
    """One pass over one object."""

    _scope: ReconciliationScope
    _obj: KubeObject
    _carried: Carried
    _writing: Writing | None = None

    @property
    def correction(self) -> Unsaved | None:
        """What is to be saved anew, as the API has not kept the changes by the handlers as they are."""
        return None if self._writing is None else self._writing.correction

    @property
    def baseline(self) -> bytes | None:
        """The snapshot of the object as of the beginning of its creation; all later changes are updates."""
        return self._carried.baseline if self._writing is None else self._writing.baseline

    @property
    def is_saving(self) -> bool:
        """Whether the object is being patched right now, which is not to be interrupted."""
        return self._writing is not None and self._writing.is_saving

    def collect_unsaved(self) -> Unsaved | None:
        """After a failure, give what is left to be saved, so that it is not lost, and not done again."""
        return self._carried.unsaved if self._writing is None else self._writing.collect_unsaved()

    async def run(self) -> Result:
        """Do what is to be done now. Raises :class:`SavingFailure` if the object could not be patched."""
        scope = self._scope
        view = View(scope, self._obj, self._carried)
        plan = decide(view.situation, view.choose)
        situation = view.situation
        scope.runtime.observer.pass_decided(scope.resource, situation.key, self._obj, situation.detection, plan)
        writing = self._writing = Writing(scope, view, self._carried, plan)
        for error in plan.skipped:
            view.logger.error("%s. The handler is skipped.", error)
        if scope.background is not None and not plan.is_background_kept:
            self._sync_background(view, plan)
        now, delay = view.situation.now, 0.0
        if plan.call:
            execution = Execution(scope.runtime, plan.progress, plan.seen, scope.user_code)
            now = await execution.execute_pending(view.get_cause(plan.reason), plan.call, now)
            delay = execution.delay
        conclude(plan, view.situation, now)
        if delay and plan.requeue_after is not None:
            plan.requeue_after = max(plan.requeue_after, delay)
        if plan.saving is END:
            writing.report()
        note_finalizer(plan, scope.handled, view.situation.key, finalizer=scope.finalizer, logger=view.logger)
        try:
            match plan.saving:
                case Saving.END:
                    return await writing.finish()
                case Saving.PROGRESS:
                    return await writing.save_progress()
                case Saving.FINALIZER:
                    return await writing.save(Patch())
        except PatchSuperseded as e:
            view.logger.info(
                "The object was handled by somebody else meanwhile, e.g. by another operator. What was done here is "
                "not saved; going on from its fresh state."
            )
            scope.rivals.note(e.obj)
            return Result(e.obj, changed=True)
        if plan.choice.accompanying:
            view.logger.debug("Deletion, but we are done with it, and we do not care.")
            view.logger.debug("Handling cycle is finished, waiting for new changes.")
        return Result(self._obj, resumed=True)

    def _sync_background(self, view: View, plan: Plan) -> None:
        background, situation = self._scope.background, view.situation
        if background is None:
            return
        if situation.blocking.is_deleted:
            background.stop_all_of_deleted(situation.key)
        else:
            unknown = {handler.id for handler in plan.choice.failures}
            background.match(view.get_cause(plan.reason), plan.spawning, unknown=unknown)

    def log_gone(self) -> None:
        """Log that the object exists no more, if any handlers were for it."""
        view = View(self._scope, self._obj, self._carried)
        if view.choose(Reason.GONE).accompanying:
            view.logger.debug("Deleted, really deleted, and we are notified.")
