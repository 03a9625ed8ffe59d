"""The choice of the declaration of a function to run, if it has any."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kopf import on
from kopf._handlers.handlers import (
    Handler,
    HandlerFn,
    name_kind,
)
from kopf._handlers.registry import OperatorRegistry
from kopf._values.fields import parse_field
from kopf._values.reasons import Reason
from kopf._values.records import replace
from kopf._values.selectors import EVERYTHING
from kopf._values.user_functions import describe_function

_CHANGES = (Reason.CREATE.value, Reason.UPDATE.value, Reason.DELETE.value, Reason.RESUME.value)
_ACTIVITIES = ("startup", "cleanup", "login", "probe")
REASONS: Collection[str] = (*_CHANGES, "event", "index", "daemon", "timer", "validate", "mutate", *_ACTIVITIES)
"""All reasons to call a function: the names of the decorators."""


def list_reasons(handler: Handler) -> Sequence[str]:
    """List the reasons to call the handler."""
    kind = name_kind(handler)
    return (Reason.CREATE.value, Reason.UPDATE.value) if kind in ("field", "reconcile") else (kind,)


def find_handlers(
    fn: HandlerFn, registry: OperatorRegistry, *, reason: str | None, id: str | None, options: Mapping[str, Any]
) -> Sequence[Handler]:
    """
    Find the declarations of the function; if there are none, declare it for the reason, or for any change.

    The ``options`` of decorators replace the declared ones.

    Raises :class:`ValueError` for unknown reasons; :class:`LookupError` if the function is declared for other reasons.
    """
    if reason is not None and reason not in REASONS:
        raise ValueError(f"There is no reason {reason!r}; the reasons are: {', '.join(REASONS)}.")
    declared = [
        handler for handler in (*registry.activities, *registry.resources, *registry.webhooks) if handler.fn == fn
    ]
    if not declared:
        return _declare(fn, _CHANGES if reason is None else (reason,), {**options, "id": id})
    suitable = [
        handler
        for handler in declared
        if (reason is None or reason in list_reasons(handler)) and (id is None or handler.id == id)
    ]
    if not suitable:
        wanted = " & ".join(f"{key}={value!r}" for key, value in (("reason", reason), ("id", id)) if value is not None)
        raise LookupError(f"{describe_function(fn)} is not declared with {wanted}, but for {_describe(declared)}.")
    if "field" in options:
        options = {**options, "field": parse_field(options["field"])}
    return [replace(handler, **options) for handler in suitable]


def _declare(fn: HandlerFn, reasons: Collection[str], options: Mapping[str, Any]) -> Sequence[Handler]:
    registry = OperatorRegistry()
    for reason in reasons:
        decorator: Callable[..., Any] = getattr(on, reason)
        what = () if reason in _ACTIVITIES else (EVERYTHING,)
        decorator(*what, **options, registry=registry)(fn)
    return [*registry.activities, *registry.resources, *registry.webhooks]


def choose_reason(handlers: Sequence[Handler], detected: Reason) -> Reason:
    """
    Choose the reason to call a handler of changes: the declared one, or the one detected from the object.

    Raises :class:`LookupError` if the handler is not declared for this reason.
    """
    reasons = dict.fromkeys(reason for handler in handlers for reason in list_reasons(handler))
    if len(reasons) == 1:
        return Reason(next(iter(reasons)))
    if detected.value in reasons:
        return detected
    raise LookupError(
        f"{describe_function(handlers[0].fn)} is declared for {_describe(handlers)}, but the states of the object "
        f"mean {detected.value!r}. Pass reason=, or old=."
    )


def check_ambiguity(handlers: Sequence[Handler]) -> None:
    """
    Check that this is one handler; it can be declared for several resources, or with several filters.

    Raises :class:`LookupError` if there are several.
    """
    if len({handler.identity for handler in handlers}) > 1 or len({type(handler) for handler in handlers}) > 1:
        raise LookupError(
            f"{describe_function(handlers[0].fn)} is declared for {_describe(handlers)}. Choose one by reason= or id=."
        )


def _describe(handlers: Sequence[Handler]) -> str:
    return ", ".join(dict.fromkeys(f"{'/'.join(list_reasons(item))} (id={item.id!r})" for item in handlers))
