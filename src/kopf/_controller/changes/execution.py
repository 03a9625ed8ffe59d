"""
Execution: the calls of the handlers in one pass, with their outcomes noted in the progress.

It saves nothing. If the operator exits in the middle, the other handlers are called next time.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from kopf._controller.changes.progress import Progress, get_delay, get_pending
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.changes.selection import Selection
from kopf._controller.controller_registry import Wakeup
from kopf._controller.runtime import Runtime
from kopf._handlers.attempts import Outcome, deliver_result
from kopf._handlers.causes import ChangingCause
from kopf._handlers.current_handler import SubhandlingContext
from kopf._handlers.executor import Surroundings
from kopf._handlers.handler_errors import HandlerChildrenRetry, UnfitObjectError
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import STOCK_LIFECYCLES, LifeCycleFn
from kopf._values.codec import UnreadableError
from kopf._values.ids import HandlerId
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.reasons import Reason
from kopf._values.records import Record, field
from kopf._values.user_functions import explaining

TITLES = {
    Reason.CREATE: "Creation",
    Reason.UPDATE: "Updating",
    Reason.DELETE: "Deletion",
    Reason.RESUME: "Resuming",
}


REFUSAL_DELAY = 1.0
"""The delay until the next question if the lifecycle chooses none of the pending handlers, in seconds."""


class Execution(Record, eq=False):
    """The calls of the handlers in one pass."""

    _runtime: Runtime
    _progress: Progress
    _seen: SeenStates
    _user_code: AbstractContextManager[None]
    _key: str
    delay: float = 0.0
    """The minimal delay until the remaining handlers can be executed, in seconds."""
    unfit: dict[HandlerId, ModelMismatchError] = field(default_factory=dict)
    """The handlers that cannot be called until the object changes, and why it does not fit their model."""

    async def execute_pending(
        self, cause: ChangingCause, pending: Sequence[ChangingHandler], now: datetime.datetime
    ) -> datetime.datetime:
        """Execute pending handlers, as many as the lifecycle chooses; return the time afterwards."""
        if cause.logger.isEnabledFor(logging.DEBUG):
            cause.logger.debug("%s is in progress: %r", TITLES[cause.reason], cause.body)
            if cause.reason is Reason.UPDATE:
                cause.logger.debug("Updating diff: %r", cause.diff)
        chosen = self._order(self._runtime.lifecycle, pending, cause)
        self.delay = 0.0 if chosen else REFUSAL_DELAY
        pause = self._runtime.pause
        for handler in chosen:
            if (pause.is_on or pause.covers is not None) and pause.stops(self._key):  # mostly, nothing is held
                break  # the rest is for later, or for another replica
            try:
                now = await self._execute(cause, handler, now, parent=None)
            except asyncio.CancelledError:
                # The operator exits. Save what has succeeded by now; the rest is for the next time.
                if not self._progress.unsaved:
                    raise
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
                break
        rest = self._list_others(chosen, pending) if self.unfit and chosen else ()
        if rest and not pause.stops(self._key):
            return await self.execute_pending(cause, rest, now)
        return now

    def _list_others(
        self, chosen: Sequence[ChangingHandler], pending: Sequence[ChangingHandler]
    ) -> Sequence[ChangingHandler]:
        """List the other handlers if none of the chosen ones could be called: not the same ones forever."""
        if not self.unfit or not self.unfit.keys() >= {handler.id for handler in chosen}:
            return ()
        return [handler for handler in pending if handler.id not in self.unfit]

    def _order(
        self, lifecycle: LifeCycleFn, pending: Sequence[ChangingHandler], cause: ChangingCause
    ) -> Sequence[ChangingHandler]:
        """Let the lifecycle choose; the stock lifecycles need only the progress."""
        if lifecycle in STOCK_LIFECYCLES:
            return pending if len(pending) < 2 else lifecycle(pending, state=self._progress)
        if not pending:
            return pending
        with explaining(lifecycle, f"the choice of handlers ({TITLES[cause.reason].lower()})"):
            return lifecycle(pending, state=self._progress, **cause.kwargs)

    async def _execute(
        self,
        cause: ChangingCause,
        handler: ChangingHandler,
        now: datetime.datetime,
        *,
        parent: SubhandlingContext | None,
    ) -> datetime.datetime:
        """Make one attempt of the handler, with its sub-handlers, if any; return the time afterwards."""
        context = SubhandlingContext(parent=handler, cause=cause, execute=self._execute_subhandlers)
        attempt = self._progress.states[handler.id].get_attempt(now)
        around = Surroundings(user_code=self._user_code, subhandling=context)
        # With no name for the outcome here: see the executor on errors and frames.
        return self._take(await self._runtime.executor.execute(handler, cause, attempt, around), cause, context, parent)

    def _take(
        self, outcome: Outcome, cause: ChangingCause, context: SubhandlingContext, parent: SubhandlingContext | None
    ) -> datetime.datetime:
        """Note the outcome of the attempt; return the time."""
        handler = context.parent
        if outcome.exception is not None:
            if isinstance(outcome.exception, UnreadableError):
                cause.body.object.check()  # if the object itself cannot be decoded, no retry will help
            if isinstance(outcome.exception, UnfitObjectError):
                self.unfit[handler.id] = outcome.exception.mismatch
                return self._runtime.clock.now()
        deliver_result(handler, outcome, cause.patch)
        now = self._runtime.clock.now()
        self._progress.note(handler, outcome, now, context.seen, self._seen)
        if handler.interval is not None and outcome.final:
            wakeup = Wakeup(cause.resource, self._key, handler.id)
            self._runtime.controllers.enqueue_later(wakeup, handler.interval, self._runtime.context)
        if parent is not None:
            parent.seen |= context.seen
        return now

    async def _execute_subhandlers(
        self,
        context: SubhandlingContext,
        handlers: Sequence[ChangingHandler],
        *,
        cause: ChangingCause | None = None,
        lifecycle: LifeCycleFn | None = None,
    ) -> None:
        """Execute some sub-handlers, as the lifecycle chooses; the parent waits until all of them are done."""
        cause = cause if cause is not None else context.cause
        lifecycle = lifecycle if lifecycle is not None else self._runtime.lifecycle
        handlers = Selection(cause).select_subhandlers([*handlers])
        if cause.patch:
            cause.patch.sign(context.parent)  # the next changes are by the sub-handlers
        context.declared.clear()
        context.seen |= dict.fromkeys(handler.id for handler in handlers)
        self._progress.involve(handlers, self._seen)
        now = self._runtime.clock.now()
        pending = get_pending(handlers, self._progress, now)
        chosen = self._order(lifecycle, pending, cause)
        is_refused = bool(pending) and not chosen
        stops, key = self._runtime.pause.stops, self._key
        while chosen and not stops(key):
            for handler in chosen:
                if stops(key):
                    break
                now = await self._execute(cause, handler, now, parent=context)
            chosen = self._order(lifecycle, self._list_others(chosen, pending), cause)
        waiting = [handler for handler in handlers if handler.id not in self.unfit] if self.unfit else handlers
        delay = get_delay(waiting, self._progress, now)
        if delay is None and len(waiting) < len(handlers):
            raise UnfitObjectError(next(self.unfit[item.id] for item in handlers if item.id in self.unfit))
        if delay is not None:
            least = REFUSAL_DELAY if is_refused else 0.0
            raise HandlerChildrenRetry("Some sub-handlers are not finished.", delay=max(delay, least))
