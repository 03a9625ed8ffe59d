"""
The running handler, for functions that it calls without passing its arguments.

It is in context variables, so the threads of synchronous handlers know it, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from kopf._handlers.causes import ChangingCause, ResourceCause
from kopf._handlers.handlers import ChangingHandler
from kopf._values.ids import HandlerId
from kopf._values.records import Record, field

current_cause: ContextVar[ResourceCause] = ContextVar("current_cause")
"""The cause of the running handler, with its object."""


class NoSubhandlingError(LookupError, TypeError, RuntimeError):
    """
    No handler of changes runs here, so there are no sub-handlers.

    The original framework raises any of the three errors, by the function and the kind of the running handler.
    """


class SubhandlingContext(Record):
    """The running handler, with its sub-handlers and the way to execute them."""

    parent: ChangingHandler
    cause: ChangingCause
    execute: Callable[..., Awaitable[None]]
    """
    Executes some sub-handlers in a context, by the rules of the current handling cycle. The keyword arguments ``cause``
    and ``lifecycle`` replace these rules.
    """
    declared: list[ChangingHandler] = field(default_factory=list)
    """The declared sub-handlers that are not executed yet."""
    seen: dict[HandlerId, None] = field(default_factory=dict)
    """All executed or considered sub-handlers of all levels, in this order."""

    def make_id(self, name: str) -> HandlerId:
        """Return the id of a sub-handler: the id of its parent, and its own name."""
        return HandlerId(f"{self.parent.id}/{name}")


current_subhandling: ContextVar[SubhandlingContext] = ContextVar("current_subhandling")
"""The context of the running handler of changes, or of its running sub-handler; not set otherwise."""
