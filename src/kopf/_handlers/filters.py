"""
Filters of handlers: the decision whether a handler is for an object, by labels, annotations, fields, and callbacks.

All criteria of a handler must be true. Callbacks get the kwargs of the handler, but see the whole object and the whole
change even if the handler is for one field. Callbacks of values also get the value as the only positional argument
(``None`` if it is absent). ``when=`` comes last: Kopf calls it only if all other criteria are true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.filter_criteria import ABSENT, PRESENT, MetaFilter, ValueFilter
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, WebhookHandler
from kopf._values.diffs import diff
from kopf._values.fields import resolve
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.reasons import Operation
from kopf._values.user_functions import FilterError, explain


def matches(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """
    Tell if the handler is for the object in its current state.

    Raises :class:`FilterError` if a callback fails.
    """
    return _matches_metadata(handler, cause) and matches_field(handler, cause) and matches_when(handler, cause)


def matches_either_state(handler: ResourceHandler, cause: ChangingCause) -> bool:
    """
    Tell if the handler is for the object in its current state, or was in its last handled state.

    Kopf leaves an object alone if it matches no handler in either state. The metadata count in the current state only:
    an object that has lost its label is not for the handler anymore.
    """
    if not _matches_metadata(handler, cause):
        return False
    if handler.field and not matches_field(handler, cause):
        if cause.old is None:
            return False
        before = resolve(cause.old, handler.field)
        if not _matches_value(handler, cause, "value=", _get_value_filter(handler), before):
            return False
    return matches_when(handler, cause)


def matches_field(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """Tell if the field of the handler has the requested value in the object, or any value if none is requested."""
    if not handler.field:
        return True
    value = resolve(cause.body, handler.field)
    return _matches_value(handler, cause, "value=", _get_value_filter(handler), value)


def matches_change(handler: ChangingHandler, cause: ChangingCause) -> bool:
    """Tell if the change affects the field of the handler, and its old & new values are the requested ones."""
    if not handler.field:
        return True
    old, new = resolve(cause.old, handler.field), resolve(cause.new, handler.field)
    if not diff(old, new):
        return False
    if handler.value is not None:
        return any(_matches_value(handler, cause, "value=", handler.value, value) for value in (new, old))
    return (handler.old is None or _matches_value(handler, cause, "old=", handler.old, old)) and (
        handler.new is None or _matches_value(handler, cause, "new=", handler.new, new)
    )


def matches_when(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """Tell if the ``when=`` callback of the handler accepts the object, or if there is none."""
    return handler.when is None or _call(handler, cause, "when=", handler.when)


def matches_operation(handler: WebhookHandler, operation: Operation, subresource: str | None) -> bool:
    """Tell if the admission handler reviews this operation on the object or on its subresource."""
    return (handler.operations is None or operation in handler.operations) and (
        handler.subresource == "*" or handler.subresource == (subresource or None)
    )


def _get_value_filter(handler: ResourceHandler) -> ValueFilter:
    return PRESENT if handler.value is None else handler.value


def _matches_metadata(handler: ResourceHandler, cause: ResourceCause) -> bool:
    head = cause.body.object.head
    return _matches_mapping(handler, cause, "labels=", handler.labels, head.labels) and _matches_mapping(
        handler, cause, "annotations=", handler.annotations, head.annotations
    )


def _matches_mapping(
    handler: ResourceHandler,
    cause: ResourceCause,
    option: str,
    pattern: Mapping[str, MetaFilter] | None,
    content: Mapping[str, str] | None,
) -> bool:
    if not pattern:
        return True
    content = content or {}
    return all(_matches_value(handler, cause, option, item, content.get(key)) for key, item in pattern.items())


def _matches_value(
    handler: ResourceHandler, cause: ResourceCause, option: str, expected: ValueFilter, value: Any
) -> bool:
    if expected is PRESENT:
        return value is not None
    if expected is ABSENT:
        return value is None
    if callable(expected):
        return _call(handler, cause, option, expected, value)
    return bool(value == expected)


def _call(
    handler: ResourceHandler, cause: ResourceCause, option: str, callback: Callable[..., bool], *args: Any
) -> bool:
    try:
        kwargs = cause.kwargs_for_filters(handler)
        if handler.decoders is not None:
            try:
                cause.decode(handler, callback, kwargs)
            except ModelMismatchError:  # the handler waits until the object fits
                return True
        return bool(callback(*args, **kwargs))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # e.g. a cancellation from the result of a cancelled task
        raise FilterError(explain(callback, f"{option} of {handler}", e)) from e
