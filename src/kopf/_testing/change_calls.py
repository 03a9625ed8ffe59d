"""
Calls of the handlers of changes: Kopf detects the change from the states of the object, as in an operator.

The last handled state is stored as by an operator, but only for the detection: handlers do not see it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kopf._controller.changes.detection import Detection, detect
from kopf._controller.changes.selection import Selection
from kopf._handlers.attempts import Attempt, Outcome, deliver_result
from kopf._handlers.causes import ChangingCause
from kopf._handlers.current_handler import SubhandlingContext
from kopf._handlers.executor import Surroundings
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._handlers.registry import HandlersOfResource
from kopf._storage.snapshots import Snapshots
from kopf._testing.call_context import CallContext, Mark
from kopf._testing.calling_options import CallingOptions, complete_previous, make_object, read_object
from kopf._testing.handler_choice import check_ambiguity, choose_reason, list_reasons
from kopf._testing.handler_run import HandlerRun
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.reasons import Reason


async def call_change_handler(context: CallContext, handlers: Sequence[ChangingHandler]) -> HandlerRun:
    """
    Call the handler for the change of the object.

    Raises :class:`LookupError` if none or several handlers are for it; :class:`TypeError` if the change is unknown.
    """
    options = context.options
    content = context.complete()
    detected = _detect(context, handlers, content)
    reason = Reason(options["reason"]) if "reason" in options else choose_reason(handlers, _name(detected, options))
    detection = _reconsider(detected, reason, is_previous_given="old" in options)
    if reason is Reason.DELETE:
        content = context.complete(is_deleted=True)
    handlers = [handler for handler in handlers if reason in list_reasons(handler)]
    check_ambiguity(handlers)
    cause = ChangingCause(
        **context.make_kwargs(content), reason=reason, initial=reason is Reason.RESUME, get_change=detection.get_change
    )
    selection = Selection(cause)
    called = selection.select_called(selection.select_accompanying(handlers))
    for error in selection.failures.values():
        raise error
    call = _Call(context, content)
    if not called or (reason is Reason.UPDATE and not cause.diff):  # unessential changes are no changes
        return call.make_run(handlers[0], cause, None, context.mark())
    return await call.make(called[0], cause, context.attempt)


class _Call:
    """One call of a handler of changes, with the calls of its sub-handlers."""

    def __init__(self, context: CallContext, content: dict[str, Any]) -> None:
        self._context = context
        self._content = content

    async def make(self, handler: ChangingHandler, cause: ChangingCause, attempt: Attempt) -> HandlerRun:
        """Call the handler, and all sub-handlers that it declares."""
        children: list[HandlerRun] = []
        mark = self._context.mark()
        execute = functools.partial(self._execute_subhandlers, children)
        subhandling = SubhandlingContext(parent=handler, cause=cause, execute=execute)
        outcome = await self._context.executor.execute(handler, cause, attempt, Surroundings(subhandling=subhandling))
        deliver_result(handler, outcome, cause.patch)
        return self.make_run(handler, cause, outcome, mark, children=tuple(children))

    def make_run(
        self, handler: ChangingHandler, cause: ChangingCause, outcome: Outcome | None, mark: Mark, **fields: Any
    ) -> HandlerRun:
        """Make the result of the call."""
        fields.update(reason=cause.reason.value, patch=cause.patch, body=self._content)
        return self._context.make_run(handler, outcome, mark, **fields)

    async def _execute_subhandlers(
        self,
        children: list[HandlerRun],
        subhandling: SubhandlingContext,
        handlers: Sequence[ChangingHandler],
        *,
        cause: ChangingCause | None = None,
        lifecycle: LifeCycleFn | None = None,
    ) -> None:
        """Execute all sub-handlers, each for the first time, whatever the lifecycle is: there is no next time."""
        cause = cause if cause is not None else subhandling.cause
        selected = Selection(cause).select_subhandlers(handlers)
        subhandling.declared.clear()
        delays = []
        for handler in selected:
            run = await self.make(handler, cause, Attempt.first(self._context.attempt.started))
            children.append(run)
            delays += [run.delay] if run.delay is not None else []
        if delays:
            raise HandlerChildrenRetry("Some sub-handlers are not finished.", delay=min(delays))


def _detect(context: CallContext, handlers: Sequence[ChangingHandler], content: dict[str, Any]) -> Detection:
    """Detect the change of the object."""
    persistence = context.settings.persistence
    extra_fields = HandlersOfResource.build(handlers).extra_fields
    snapshots = Snapshots(persistence.diffbase_storage, persistence.progress_storage, extra_fields)
    patch = Patch()
    if "old" in context.options:
        old = make_object(complete_previous(read_object(context.options["old"]), content))
        snapshots.store(snapshots.take(old), body=Body(make_object(content)), patch=patch)
    if content["metadata"].get("deletionTimestamp"):
        patch.meta["finalizers"] = [persistence.finalizer]  # with no finalizer, there is nothing to be handled
    return detect(make_object(patch.apply_to(content)), snapshots, finalizer=persistence.finalizer, initial=True)


def _name(detection: Detection, options: CallingOptions) -> Reason:
    """Name the reason: with an old state, it is an update, even without a difference."""
    return Reason.UPDATE if detection.reason is Reason.RESUME and "old" in options else detection.reason


def _reconsider(detection: Detection, reason: Reason, *, is_previous_given: bool) -> Detection:
    """
    Adjust the detected change to the reason of the call: the test is about this reason.

    Raises :class:`TypeError` if it is impossible.
    """
    is_handled = detection.last is not None or detection.is_same
    match reason:
        case Reason.CREATE if is_previous_given:
            raise TypeError("A new object was never handled before: remove the option old=.")
        case Reason.CREATE:
            return Detection(reason, detection.snapshot)
        case Reason.UPDATE if not is_handled:
            raise TypeError("An update needs the last handled state of the object: pass it as old=…")
        case Reason.DELETE | Reason.RESUME if not is_handled:  # it has not changed since it was handled
            return Detection(reason, detection.snapshot, is_same=True)
    return detection
