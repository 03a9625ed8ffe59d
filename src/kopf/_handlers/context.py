"""
The handler being executed, as known to the tools that are called from inside of it with no explicit arguments.

It is kept in context variables, so it is known in the threads of synchronous handlers too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol

from kopf._handlers.causes import ChangingCause
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId

current_body: ContextVar[Body] = ContextVar("current_body")
"""The object being handled."""


class SubhandlingFn(Protocol):
    """Executes the sub-handlers by the rules of the current handling cycle, unless there are other rules."""

    async def __call__(
        self,
        context: SubhandlingContext,
        handlers: Sequence[ChangingHandler],
        *,
        cause: ChangingCause | None = None,
        lifecycle: LifeCycleFn | None = None,
    ) -> None: ...


@dataclasses.dataclass
class SubhandlingContext:
    """What the currently executed handler needs to declare and to execute its sub-handlers."""

    parent: ChangingHandler
    cause: ChangingCause
    execute: SubhandlingFn
    """Executes the sub-handlers, given this context."""
    declared: list[ChangingHandler] = dataclasses.field(default_factory=list)
    """The sub-handlers that are declared but not executed yet."""
    seen: dict[HandlerId, None] = dataclasses.field(default_factory=dict)
    """All sub-handlers that were executed or considered, in this order, those of the sub-handlers included."""


current_subhandling: ContextVar[SubhandlingContext] = ContextVar("current_subhandling")
"""Set only while a change-detecting handler (or a sub-handler of it) is being executed."""


@contextlib.contextmanager
def executing(body: Body, subhandling: SubhandlingContext | None = None) -> Iterator[None]:
    """Let the tools know what is being handled."""
    body_token = current_body.set(body)
    sub_token = current_subhandling.set(subhandling) if subhandling is not None else None
    try:
        yield
    finally:
        current_body.reset(body_token)
        if sub_token is not None:
            current_subhandling.reset(sub_token)
