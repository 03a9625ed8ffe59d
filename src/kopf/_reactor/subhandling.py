"""Explicit execution of sub-handlers, at the very place in the handler where their results are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kopf._handlers.context import SubhandlingContext, current_subhandling
from kopf._handlers.handlers import ChangingHandler
from kopf._values.ids import HandlerId, get_callable_id


async def execute(
    *,
    fns: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None = None,
    handlers: Iterable[ChangingHandler] | None = None,
) -> None:
    """
    Execute the sub-handlers of the current handler: the functions, the handlers, or those declared in it so far.

    It only returns when all of them are finished. Until then, it raises an exception, by which the current handler
    is interrupted, and will be called again. Raises :class:`LookupError` outside of handlers.
    """
    context = current_subhandling.get(None)
    if context is None:
        raise LookupError("Sub-handlers can only be executed from inside of a handler of changes.")
    if fns is not None and handlers is not None:
        raise TypeError("Only one source of the sub-handlers can be specified: either fns= or handlers=.")
    if fns is not None:
        handlers = _make_handlers(fns, context)
    await context.execute(context, list(handlers) if handlers is not None else list(context.declared))


def _make_handlers(
    fns: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]], context: SubhandlingContext
) -> list[ChangingHandler]:
    named = fns.items() if isinstance(fns, Mapping) else ((get_callable_id(fn), fn) for fn in fns)
    return [
        ChangingHandler(id=HandlerId(f"{context.parent.id}/{name}"), fn=fn, selector=None, reason=None)
        for name, fn in named
    ]
