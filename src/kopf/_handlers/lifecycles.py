"""
Lifecycles: which of the pending handlers to execute now, and in which order.

A lifecycle is a callable that gets the pending handlers and the kwargs of the cause, plus ``state``: a mapping of
the handlers' ids to their progress. It returns those to be executed in this cycle. The rest waits for the next one.
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
    """All pending handlers, in the order of their declaration."""
    return handlers


def one_by_one(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Only the first one of the pending handlers."""
    return handlers[:1]


def randomized(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """Only one of the pending handlers, a random one."""
    return [random.choice(handlers)] if handlers else []


def shuffled(handlers: Sequence[H], **_: Any) -> Sequence[H]:
    """All pending handlers, in a random order."""
    return random.sample(handlers, k=len(handlers))


def asap(handlers: Sequence[H], *, state: Mapping[Any, Any], **_: Any) -> Sequence[H]:
    """Only one of the pending handlers, the least retried one; the default."""
    return [min(handlers, key=lambda handler: state[handler.id].retries)] if handlers else []


STOCK_LIFECYCLES = frozenset({all_at_once, one_by_one, randomized, shuffled, asap})
"""Those of the framework: they take at least one handler if there are any, and look at nothing but the progress."""

_default_lifecycle: LifeCycleFn | None = None


def get_default_lifecycle() -> LifeCycleFn:
    """The lifecycle of operators for which no other one is specified."""
    return _default_lifecycle if _default_lifecycle is not None else asap


def set_default_lifecycle(lifecycle: LifeCycleFn | None) -> None:
    """Replace the lifecycle of operators for which no other one is specified; ``None`` restores :func:`asap`."""
    global _default_lifecycle
    _default_lifecycle = lifecycle
