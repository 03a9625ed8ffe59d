"""Calls of the admission handlers: the change is reviewed as in an operator, but nobody has asked over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kopf._admission.verdicts import judge
from kopf._handlers.causes import WebhookCause
from kopf._handlers.handlers import WebhookHandler
from kopf._handlers.matching import matches_operation
from kopf._testing.call_context import CallContext
from kopf._testing.given_objects import complete_previous, make_object, read_object
from kopf._testing.handler_choice import list_reasons
from kopf._testing.handler_run import HandlerRun
from kopf._values.bodies import Body
from kopf._values.reasons import Operation

_SOMEBODY: Mapping[str, Any] = {"username": "somebody", "groups": ["system:authenticated"]}
"""Every change is made by somebody, whose name is known."""


async def call_admission_handler(context: CallContext, handlers: Sequence[WebhookHandler]) -> HandlerRun:
    """Call the handler if it is for the operation. Raises :class:`TypeError` if it is unknown what has changed."""
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
        "delay": None,  # nobody waits for another attempt
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
            raise TypeError("An update is a change of something: pass the previous state of the object as old=…")
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
