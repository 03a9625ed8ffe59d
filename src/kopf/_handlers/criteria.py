"""
Criteria: what can be specified in the declarations to choose the objects that a handler is for.

A criterion of a value is the value itself, or one of the tokens, or a callback. How they are applied, see matching.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any, TypeVar


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
