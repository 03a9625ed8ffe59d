"""
The reconciler: makes a pass over the pending state of an object, and notes its result or failure.

:mod:`kopf._controller.changes` makes the pass; its result or failure determines the next action for the object.
"""

from __future__ import annotations

import asyncio
import logging

from kopf._client.resources.patching import PatchConflict
from kopf._controller.changes.carried import Carried, Result, SavingFailure
from kopf._controller.changes.reconcile_pass import ReconcilePass
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.selection import could_match
from kopf._controller.failure_reports import report_failure
from kopf._controller.object_memory import ObjectMemory
from kopf._controller.object_state import ObjectState
from kopf._controller.tracked_objects import TrackedObject, TrackedObjects
from kopf._controller.unreadable import release_unreadable
from kopf._logging.loggers import ObjectLogger
from kopf._values.codec import NestingError, UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.records import replace


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
