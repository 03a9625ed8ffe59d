"""
The reconciler: one look at one object, in the way that its resource and its state need.

It is the only one here who knows how changes are handled, see :mod:`kopf._controller.changes`.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from kopf._controller.background_sync import sync
from kopf._controller.changes.reconciliation import Reconciliation
from kopf._controller.changes.saving import Carried, Result
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.selection import could_match
from kopf._controller.object_state import Memory
from kopf._controller.unreadable import UnreadableObjects
from kopf._logging.loggers import ObjectLogger
from kopf._values.codec import NestingError, UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.records import replace


class Reconciler:
    """Looks at the objects of one resource, and remembers what is to be remembered while they exist."""

    def __init__(self, scope: ReconciliationScope) -> None:
        self._scope = scope
        self._running: dict[str, Reconciliation] = {}
        self.unreadable = UnreadableObjects(scope.runtime, scope.resource)

    def look_at(self, key: str, obj: KubeObject, memory: Memory) -> Coroutine[Any, Any, Result]:
        """
        Do what is to be done for the object in this state. Raises the errors of the API and of the framework.

        What is not finished or not saved, is left in the memory, to be passed to the next look.
        """
        if obj.pruned:
            return self._set_aside(obj, obj.pruned)
        if self._scope.background is None or self._scope.candidates.changing:
            return self._reconcile(key, obj, memory)
        return self._sync(key, obj, memory)

    async def _reconcile(self, key: str, obj: KubeObject, memory: Memory) -> Result:
        # A copy: what comes on the stream meanwhile belongs to the next look.
        reconciliation = self._running[key] = Reconciliation(self._scope, obj, replace(memory))
        memory.saved = None
        try:
            result = await reconciliation.run()
        except Exception as e:
            memory.unsaved = reconciliation.collect_unsaved()
            memory.baseline = reconciliation.baseline
            if not isinstance(e, UnreadableError):
                raise
            problem = str(e)  # it was not decoded until somebody has looked
        else:
            memory.unsaved = reconciliation.correction
            memory.baseline = None if result.resumed else reconciliation.baseline
            self.unreadable.forget(key)
            return result
        finally:
            del self._running[key]
        return await self._set_aside(obj, problem)

    async def _sync(self, key: str, obj: KubeObject, memory: Memory) -> Result:
        try:
            result = await sync(self._scope, obj, errors=memory.errors)
        except UnreadableError as e:
            problem = str(e)
        else:
            self.unreadable.forget(key)
            return result
        return await self._set_aside(obj, problem)

    def _set_aside(self, obj: KubeObject, problem: str) -> Coroutine[Any, Any, Result]:
        scope = self._scope
        return self.unreadable.set_aside(obj, problem, background=scope.background, handled=scope.handled)

    def is_saving(self, key: str) -> bool:
        """Tell if what the handlers have done is being written to the object right now."""
        running = self._running.get(key)
        return running is not None and running.is_saving

    def release_memory(self, key: str) -> None:
        """The object is idle, or waits for something: it may be for long, and there may be many such objects."""
        self._scope.runtime.memos.release(key)
        if self._scope.background is not None:
            self._scope.background.release_memory(key)

    def forget(self, obj: KubeObject) -> None:
        """The object exists no more: log that if it was handled, and keep nothing of it."""
        key, scope = obj.head.key, self._scope
        scope.handled.forget(key)
        self.unreadable.forget(key)
        logger = ObjectLogger(body=obj, settings=scope.runtime.settings)
        if logger.isEnabledFor(logging.DEBUG) and could_match(scope.candidates.changing, obj.head):
            try:
                Reconciliation(scope, obj, Carried()).log_gone()
            except NestingError:  # it could be read before, with fewer calls on the stack
                logger.debug("Deleted, but it is nested too deeply to tell if any handlers were for it.")
            except Exception:  # of the filters
                logger.exception("The deletion could not be handled.")
        scope.runtime.memos.forget(key)
