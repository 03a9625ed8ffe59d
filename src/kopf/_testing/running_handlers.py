"""
Unit tests of handlers: call one function for one state of an object, and check its effects.

There is no cluster and no operator. But the code of Kopf makes the arguments of the function, and processes its
results, errors, and patches, as in an operator.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from kopf._admission.verdicts import judge
from kopf._events.log_posting import current_recorder
from kopf._handlers.causes import ActivityCause, WebhookCause
from kopf._handlers.filters import matches_operation
from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    Handler,
    HandlerFn,
    ResourceHandler,
    WebhookHandler,
)
from kopf._handlers.registry import get_default_registry
from kopf._handlers.signatures import check_handlers
from kopf._testing.call_context import CallContext, LoopIsRunningError, Loops
from kopf._testing.calling_options import (
    CallingOptions,
    GivenObject,
    check_options,
    complete_previous,
    make_object,
    pick_declaration_options,
    read_object,
)
from kopf._testing.change_calls import call_change_handler
from kopf._testing.handler_choice import check_ambiguity, find_handlers, list_reasons
from kopf._testing.handler_run import HandlerRun
from kopf._testing.object_calls import call_object_handler
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.reasons import Operation
from kopf._values.user_functions import describe_function

H = TypeVar("H", bound=Handler)
_SOMEBODY: Mapping[str, Any] = {"username": "somebody", "groups": ["system:authenticated"]}
"""The default user of reviews: every change is made by a named user."""


def run_handler(fn: HandlerFn, body: GivenObject | None = None, **options: Unpack[CallingOptions]) -> HandlerRun:
    """
    Call the handler once, and return the outcome and its effects.

    ``body`` is the object, or its relevant part: a dict, a text in YAML, or the path of a file. Kopf invents the rest.

    Synchronous functions are called directly, with no threads and no event loop. Coroutine functions run in a new event
    loop. If an event loop is already running, as in async tests, this raises :class:`RuntimeError`: use
    :func:`run_handler_async`.

    A function with a decorator is called as the declared handler: with its id, limits, errors mode, field, and param,
    and only if its filters match. A function without a decorator is called as if it were declared.

    The returned outcome contains the error of the handler, if any. Raises :class:`LookupError` if the function is
    declared several times, and the declaration is ambiguous; :class:`kopf.DeclarationError` if the function does not
    accept its arguments.
    """
    try:
        return _drive(_run(fn, body, options, Loops(is_running=False)))
    except LoopIsRunningError:
        raise RuntimeError(
            f"{describe_function(fn)} needs an event loop, and one is already running: "
            "use `await kopf.testing.run_handler_async(…)`, with the same arguments."
        ) from None


async def run_handler_async(
    fn: HandlerFn, body: GivenObject | None = None, **options: Unpack[CallingOptions]
) -> HandlerRun:
    """Do the same as :func:`run_handler`, but in the running event loop. Synchronous functions block it."""
    return await _run(fn, body, options, Loops(is_running=True))


async def _run(fn: HandlerFn, body: GivenObject | None, options: CallingOptions, loops: Loops) -> HandlerRun:
    options = check_options(options)
    handlers = find_handlers(
        fn,
        options["registry"] if "registry" in options else get_default_registry(),
        reason=options.get("reason"),
        id=options.get("id"),
        options=pick_declaration_options(options),
    )
    check_handlers(handlers, options.get("indices", {}).keys())
    context = CallContext(handlers, body, options, loops)
    token = current_recorder.set(context.sink)
    try:
        return await _call(context, handlers)
    finally:
        current_recorder.reset(token)


async def _call(context: CallContext, handlers: Sequence[Handler]) -> HandlerRun:
    changing = _pick(handlers, ChangingHandler)
    if len(changing) == len(handlers):
        return await call_change_handler(context, changing)
    check_ambiguity(handlers)
    if webhooks := _pick(handlers, WebhookHandler):
        return await _call_admission_handler(context, webhooks)
    if others := _pick(handlers, ResourceHandler):
        return await call_object_handler(context, others)
    return await _call_activity_handler(context, _pick(handlers, ActivityHandler)[0])


async def _call_activity_handler(context: CallContext, handler: ActivityHandler) -> HandlerRun:
    """Call the handler: there is no object, so there is nothing to patch."""
    logger = logging.getLogger(f"kopf.activities.{handler.activity.value}")
    cause = ActivityCause(**context.make_common_kwargs(logger), activity=handler.activity, settings=context.settings)
    mark = context.mark()
    outcome = await context.executor.execute(handler, cause, context.attempt)
    return context.make_run(handler, outcome, mark, reason=list_reasons(handler)[0], patch=Patch(), body={})


async def _call_admission_handler(context: CallContext, handlers: Sequence[WebhookHandler]) -> HandlerRun:
    """
    Call the handler directly, not over HTTP, if it is declared for the operation.

    Raises :class:`TypeError` if the old state is unknown.
    """
    content, mark = context.complete(), context.mark()
    operation = _choose_operation(context, handlers[0])
    cause = _make_cause(context, content, operation)
    asked = [item for item in handlers if matches_operation(item, operation, cause.subresource)]
    is_shown = context.settings.admission.show_errors
    verdict = await judge(context.executor, cause, asked, context.attempt, is_shown=is_shown)
    facts: dict[str, Any] = {
        "reason": list_reasons(handlers[0])[0],
        "patch": cause.patch,
        "body": content,
        "warnings": tuple(cause.warnings),
        "denial": verdict.denial,
        "delay": None,  # there are no other attempts
    }
    outcome = context.executor.latest
    if outcome is not None or verdict.denial is not None:
        facts["outcome"] = "allowed" if verdict.denial is None else "denied"
    return context.make_run(handlers[0], outcome, mark, **facts)


def _choose_operation(context: CallContext, handler: WebhookHandler) -> Operation:
    options = context.options
    if "operation" in options:
        return options["operation"]
    if handler.operations is not None and len(handler.operations) == 1:
        return next(iter(handler.operations))
    return "UPDATE" if "old" in options else "CREATE"


def _make_cause(context: CallContext, content: dict[str, Any], operation: Operation) -> WebhookCause:
    options, kwargs = context.options, context.make_kwargs(content, is_local=True)
    body: Body = kwargs["body"]
    old: Body | None = None
    if operation == "UPDATE":
        if "old" not in options:
            raise TypeError("An update needs the previous state of the object: pass it as old=…")
        old = Body(make_object(complete_previous(read_object(options["old"]), content)))
    elif operation == "DELETE":
        old = body
    return WebhookCause(
        **kwargs,
        name=content["metadata"].get("name"),
        namespace=content["metadata"].get("namespace"),
        operation=operation,
        subresource=options.get("subresource"),
        dryrun=options.get("dryrun", False),
        userinfo=options.get("userinfo", _SOMEBODY),
        headers=options.get("headers", {}),
        sslpeer=options.get("sslpeer") or {},
        warnings=[],
        old=old,
        new=None if operation == "DELETE" else body,
    )


def _pick(handlers: Sequence[Handler], cls: type[H]) -> Sequence[H]:
    return [handler for handler in handlers if isinstance(handler, cls)]


def _drive(coroutine: Coroutine[Any, Any, HandlerRun]) -> HandlerRun:
    """Run the coroutine with no event loop: it never waits, except in its own loops."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        run: HandlerRun = e.value
        return run
    coroutine.close()
    raise RuntimeError("The handler waits outside of any event loop.")
