"""
Filters: which objects a handler is for, by labels, annotations, fields, and arbitrary callbacks.

All criteria of a handler must be satisfied. Callbacks get the same kwargs as the handler; those of values
also get the value as the only positional argument (``None`` if it is absent).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kopf._values.fields import resolve

if TYPE_CHECKING:
    from kopf._handlers.causes import ChangingCause, ResourceCause
    from kopf._handlers.handlers import ResourceHandler


class MetaFilterToken(enum.Enum):
    """Special values of filters."""

    PRESENT = "PRESENT"
    ABSENT = "ABSENT"


PRESENT = MetaFilterToken.PRESENT
"""The value exists, whatever it is (an empty string too)."""
ABSENT = MetaFilterToken.ABSENT
"""The value does not exist."""

WhenFilter = Callable[..., bool]
MetaFilter = str | MetaFilterToken | Callable[..., bool]
ValueFilter = Any  # None | Any | MetaFilterToken | Callable[..., bool]

FilterFn = TypeVar("FilterFn", bound=Callable[..., bool])


def not_(fn: FilterFn) -> FilterFn:
    """Make a callback that is true if the callback is false."""

    def not_fn(*args: Any, **kwargs: Any) -> bool:
        return not fn(*args, **kwargs)

    return not_fn  # type: ignore[return-value]  # it has the signature of what it wraps


def all_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a callback that is true if all callbacks are true."""

    def all_fn(*args: Any, **kwargs: Any) -> bool:
        return all(fn(*args, **kwargs) for fn in fns)

    return all_fn  # type: ignore[return-value]


def any_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a callback that is true if at least one callback is true."""

    def any_fn(*args: Any, **kwargs: Any) -> bool:
        return any(fn(*args, **kwargs) for fn in fns)

    return any_fn  # type: ignore[return-value]


def none_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a callback that is true if all callbacks are false."""

    def none_fn(*args: Any, **kwargs: Any) -> bool:
        return not any(fn(*args, **kwargs) for fn in fns)

    return none_fn  # type: ignore[return-value]


def matches_object(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """
    Tell if the object could ever be of interest for the handler: by everything except for the fields.

    Fields come and go with changes, while the objects that match here are accompanied from their creation.
    """
    head = cause.body.object.head
    return (
        _matches_metadata(handler.labels, head.labels, handler, cause)
        and _matches_metadata(handler.annotations, head.annotations, handler, cause)
        and (handler.when is None or bool(handler.when(**cause.kwargs_for(handler))))
    )


def matches_field(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """Tell if the field of the handler has the requested value (or any, if none is requested) in the object."""
    if not handler.field:
        return True
    value = resolve(cause.body, handler.field)
    return _matches_value(PRESENT if handler.value is None else handler.value, value, handler, cause)


def matches_change(handler: ResourceHandler, cause: ChangingCause) -> bool:
    """Tell if the field of the handler is affected by the change, and was or became what is requested."""
    if not handler.field:
        return True
    old, new = resolve(cause.old, handler.field), resolve(cause.new, handler.field)
    if old == new:
        return False
    old_filter, new_filter = getattr(handler, "old", None), getattr(handler, "new", None)
    if handler.value is not None:
        return _matches_value(handler.value, new, handler, cause) or _matches_value(handler.value, old, handler, cause)
    return (old_filter is None or _matches_value(old_filter, old, handler, cause)) and (
        new_filter is None or _matches_value(new_filter, new, handler, cause)
    )


def _matches_metadata(
    pattern: Mapping[str, MetaFilter] | None,
    content: Mapping[str, str] | None,
    handler: ResourceHandler,
    cause: ResourceCause,
) -> bool:
    if not pattern:
        return True
    content = content or {}
    return all(_matches_value(expected, content.get(key), handler, cause) for key, expected in pattern.items())


def _matches_value(expected: ValueFilter, value: Any, handler: ResourceHandler, cause: ResourceCause) -> bool:
    if expected is PRESENT:
        return value is not None
    if expected is ABSENT:
        return value is None
    if callable(expected):
        return bool(expected(value, **cause.kwargs_for(handler)))
    return bool(value == expected)
