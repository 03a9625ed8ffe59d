"""Kinds of handlers in words: by which decorator they are declared, what they are for, and why not for this now."""

from __future__ import annotations

from collections.abc import Mapping

from kopf._handlers.handlers import (
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._values.reasons import Reason, WebhookType

_KINDS: Mapping[type[Handler], str] = {
    WatchingHandler: "event",
    IndexingHandler: "index",
    DaemonHandler: "daemon",
    TimerHandler: "timer",
}

_PURPOSES = {
    "create": "creations",
    "update": "updates",
    "delete": "deletions",
    "resume": "resuming, i.e. once after each start of an operator",
    "field": "changes of its field",
}

TITLES: Mapping[Reason, str] = {
    Reason.CREATE: "creation",
    Reason.UPDATE: "update",
    Reason.DELETE: "deletion",
    Reason.RESUME: "resuming",
    Reason.NOOP: "nothing new",
    Reason.FREE: "deleted, none of our business",
    Reason.GONE: "gone",
}
"""What has happened to the object."""

SITUATIONS: Mapping[Reason, str] = {
    Reason.CREATE: "the object is new: it was never handled to the end",
    Reason.UPDATE: "the object has changed since it was handled last",
    Reason.DELETE: "the object is being deleted, and waits for the operator",
    Reason.RESUME: "nothing has changed since the object was handled last, but the operator has not resumed it yet",
    Reason.NOOP: "nothing has changed since the object was handled last",
    Reason.FREE: "the object is being deleted, and does not wait for the operator",
    Reason.GONE: "the object exists no more",
}
"""The same in a sentence."""


def name_kind(handler: Handler) -> str:
    """Name the decorator."""
    match handler:
        case WebhookHandler():
            return "validate" if handler.type is WebhookType.VALIDATING else "mutate"
        case ChangingHandler(initial=True):
            return "resume"
        case ChangingHandler(reason=Reason() as reason):
            return reason.value
        case ChangingHandler():
            return "field"
    return _KINDS[type(handler)]


def explain_other_reason(handler: ChangingHandler, reason: Reason) -> str:
    """Say why the handler, which is for the object, is not called for what has happened to it."""
    kind = name_kind(handler)
    purpose = f"is for {_PURPOSES[kind]}"
    if kind == "delete" and reason is not Reason.FREE:
        return f"{purpose}, but the object is not being deleted"
    if kind == "resume":
        if reason is Reason.DELETE:
            return f"{purpose}, but not of objects that are being deleted: that needs deleted=True"
        return f"{purpose}: this one has resumed the object, or it was created after the start"
    if kind == "create" and reason in (Reason.UPDATE, Reason.NOOP, Reason.RESUME):
        return f"{purpose}, but the object was already handled"
    return f"{purpose}, but {SITUATIONS[reason]}"
