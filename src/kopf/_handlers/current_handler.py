"""
The handler being executed, as known to the tools that are called from inside of it with no explicit arguments.

It is kept in context variables, so it is known in the threads of synchronous handlers too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._values.ids import HandlerId
from kopf._values.records import Record, field

current_cause: ContextVar[ResourceCause] = ContextVar("current_cause")
"""Why the handler is executed, and for which object."""


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


class SubhandlingContext(Record):
    """What the currently executed handler needs to declare and to execute its sub-handlers."""

    parent: ChangingHandler
    cause: ChangingCause
    execute: SubhandlingFn
    """Executes the sub-handlers, given this context."""
    declared: list[ChangingHandler] = field(default_factory=list)
    """The sub-handlers that are declared but not executed yet."""
    seen: dict[HandlerId, None] = field(default_factory=dict)
    """All sub-handlers that were executed or considered, in this order, those of the sub-handlers included."""


current_subhandling: ContextVar[SubhandlingContext] = ContextVar("current_subhandling")
"""Set only while a change-detecting handler (or a sub-handler of it) is being executed."""
