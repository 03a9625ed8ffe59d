"""
Lifecycles: functions that choose which of the pending handlers Kopf calls now, and in which order.

A lifecycle gets the pending handlers, the keyword arguments of the cause, and ``state``: the progress of the handlers
by their ids. It returns the handlers for this cycle. The others wait for the next cycle.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kopf._handlers.handlers import Handler

H = TypeVar("H", bound=Handler)


class LifeCycleFn(Protocol):
    """The signature of lifecycles."""

    def __call__(self, handlers: Sequence[Any], *, state: Mapping[Any, Any], **kwargs: Any) -> Sequence[Any]: ...


def all_at_once(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Choose all pending handlers, in the order of their declaration."""
    return handlers


def one_by_one(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Choose the first of the pending handlers."""
    return handlers[:1]


def randomized(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Choose one random handler of the pending ones."""
    return [random.choice(handlers)] if handlers else []


def shuffled(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Choose all pending handlers, in a random order."""
    return random.sample(handlers, k=len(handlers))


def asap(handlers: Sequence[H], *, state: Mapping[Any, Any], **_: Any) -> Sequence[H]:
    """Choose the pending handler with the fewest retries. This is the default."""
    return [min(handlers, key=lambda handler: state[handler.id].retries)] if handlers else []


STOCK_LIFECYCLES = frozenset({all_at_once, one_by_one, randomized, shuffled, asap})
"""The lifecycles of the framework: they choose at least one handler if there are any, and use only the progress."""

_default_lifecycle: LifeCycleFn | None = None


def get_default_lifecycle() -> LifeCycleFn:
    """Get the lifecycle of operators without a ``lifecycle`` of their own."""
    return _default_lifecycle if _default_lifecycle is not None else asap


def set_default_lifecycle(lifecycle: LifeCycleFn | None) -> None:
    """Replace the lifecycle of operators without a ``lifecycle`` of their own; ``None`` restores :func:`asap`."""
    global _default_lifecycle
    _default_lifecycle = lifecycle
