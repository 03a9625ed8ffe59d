"""
Criteria: the filters of handlers in their declarations.

A criterion of a value is the value itself, or a token, or a callback. The module ``filters`` applies them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any, TypeVar


class MetaFilterToken(enum.Enum):
    """Special values of filters: :data:`kopf.PRESENT` and :data:`kopf.ABSENT`."""

    PRESENT = "PRESENT"
    ABSENT = "ABSENT"


PRESENT = MetaFilterToken.PRESENT
"""In filters: the label, annotation, or field exists, with any value, e.g. an empty string."""
ABSENT = MetaFilterToken.ABSENT
"""In filters: the label, annotation, or field does not exist."""

WhenFilter = Callable[..., bool]
MetaFilter = str | MetaFilterToken | Callable[..., bool]
ValueFilter = Any  # None | Any | MetaFilterToken | Callable[..., bool]

FilterFn = TypeVar("FilterFn", bound=Callable[..., bool])


def not_(fn: FilterFn) -> FilterFn:
    """Make a filter callback that returns true if the callback ``fn`` returns false."""

    def not_fn(*args: Any, **kwargs: Any) -> bool:
        return not fn(*args, **kwargs)

    return not_fn  # type: ignore[return-value]  # it has the signature of the wrapped function


def all_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a filter callback that returns true if all callbacks in ``fns`` return true."""

    def all_fn(*args: Any, **kwargs: Any) -> bool:
        return all(fn(*args, **kwargs) for fn in fns)

    return all_fn  # type: ignore[return-value]


def any_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a filter callback that returns true if at least one callback in ``fns`` returns true."""

    def any_fn(*args: Any, **kwargs: Any) -> bool:
        return any(fn(*args, **kwargs) for fn in fns)

    return any_fn  # type: ignore[return-value]


def none_(fns: Collection[FilterFn]) -> FilterFn:
    """Make a filter callback that returns true if all callbacks in ``fns`` return false."""

    def none_fn(*args: Any, **kwargs: Any) -> bool:
        return not any(fn(*args, **kwargs) for fn in fns)

    return none_fn  # type: ignore[return-value]
