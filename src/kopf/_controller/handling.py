"""The handling of one state of one object: from the state, through the reconciler, back to the state."""

from __future__ import annotations

import asyncio

from kopf._client.resources.patching import PatchConflict
from kopf._controller.changes.saving import SavingFailure
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.object_state import ObjectState
from kopf._controller.reconciler import Reconciler
from kopf._controller.troubles import Troubles
from kopf._values.objects import KubeObject


class StateHandling:
    """Has the objects of one resource reconciled, and tells their states what has come out of that."""

    def __init__(self, scope: ReconciliationScope, reconciler: Reconciler, troubles: Troubles) -> None:
        self._scope = scope
        self._reconciler = reconciler
        self._troubles = troubles
        self._background = scope.background
        self._observer = scope.runtime.observer

    async def handle(self, key: str, state: ObjectState) -> None:
        """Handle what is pending. All errors are reported, and lead to a delay."""
        before = state.on_start()
        obj: KubeObject | None = before
        error: BaseException | None = None
        delay: float | None = None
        observer, resource = self._observer, self._scope.resource
        started = observer.clock()
        observer.pass_begun(resource, key, before)
        try:
            result = await self._reconciler.look_at(key, before, state.memory)
        except asyncio.CancelledError as e:
            error = e
            raise
        except SavingFailure as e:
            if e.obj is not before:
                self._follow(state, before, e.obj, asyncio.get_running_loop().time())
            obj, error = e.obj, e.__cause__ or e
            delay = self._postpone(key, state, e.obj, error)
        except Exception as e:
            error = e
            delay = self._postpone(key, state, before, e)
        else:
            now = asyncio.get_running_loop().time()
            obj, error, delay = result.obj, result.error, result.requeue_after
            if result.changed and obj is not None:
                self._follow(state, before, obj, now)
            state.on_result(result, now)
            if error is None:
                self._troubles.forget(key)
            elif obj is not None and state.pending is None:
                delay = self._postpone(key, state, obj, error)
        finally:
            observer.pass_ended(resource, key, obj, error, delay, started)
            error = None  # it holds this frame by its traceback: they must not hold each other

    def _follow(self, state: ObjectState, before: KubeObject, after: KubeObject, now: float) -> None:
        """We have changed the object. Unless something even newer has come, that is what it is now."""
        is_latest = state.on_response(before, after, now)
        if is_latest and self._background is not None:
            self._background.refresh(after)

    def _postpone(self, key: str, state: ObjectState, obj: KubeObject, error: BaseException) -> float | None:
        """Leave the object alone for some time after an error of ours or of the API; get that time in seconds."""
        now = asyncio.get_running_loop().time()
        delay = state.on_failure(obj, now, is_conflict=isinstance(error, PatchConflict))
        self._troubles.report(key, obj, error, delay=delay, is_unsaved=state.memory.unsaved is not None)
        return delay

    def release_memory(self, key: str, state: ObjectState | None) -> None:
        """The object is idle, or waits for something: it may be for long, and there may be many such objects."""
        self._reconciler.release_memory(key)
        if state is not None and state.last_seen is not None:
            state.last_seen.forget_values()

    def forget(self, key: str, obj: KubeObject) -> None:
        """The object exists no more, and this was its last state: keep nothing of it."""
        self._troubles.forget(key)
        self._reconciler.forget(obj)
