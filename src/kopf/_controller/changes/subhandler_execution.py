"""Explicit execution of sub-handlers, at the place in the handler that needs their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kopf._controller.changes.selection import Selection
from kopf._handlers.causes import ChangingCause
from kopf._handlers.current_handler import NoSubhandlingError, SubhandlingContext, current_subhandling
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_handlers
from kopf._values.ids import get_callable_id
from kopf._values.records import replace

Fns = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]


async def execute(
    *,
    fns: Fns | None = None,
    handlers: Iterable[ChangingHandler] | None = None,
    registry: OperatorRegistry | None = None,
    lifecycle: LifeCycleFn | None = None,
    cause: ChangingCause | None = None,
) -> None:
    """
    Execute the sub-handlers of the current handler.

    Their source is one of: ``fns``, functions, or a mapping of ids to functions; ``handlers``; or a ``registry``, of
    which the handlers for this resource and this change are executed. By default, all sub-handlers declared so far in
    the current handler are executed.

    ``lifecycle`` chooses and orders the pending sub-handlers; by default, it is that of the operator. ``cause``
    replaces the cause of the current handler as the source of the sub-handlers' kwargs.

    Returns when all sub-handlers have finished. Until then, raises an exception that interrupts the current handler, so
    that Kopf calls it again later. Raises :class:`LookupError` outside of handlers of changes, :class:`TypeError` for
    more than one source or an unfit cause, and :class:`ValueError` if ``fns`` are no functions.
    """
    if sum(source is not None for source in (fns, handlers, registry)) > 1:
        raise TypeError("Only one source of the sub-handlers can be specified: fns=, handlers=, or registry=.")
    named = None if fns is None else _name_functions(fns)
    context = current_subhandling.get(None)
    if context is None:
        raise NoSubhandlingError("Sub-handlers can be executed only inside of a handler of changes.")
    if cause is not None and not isinstance(cause, ChangingCause):
        raise NoSubhandlingError(f"Sub-handlers are for changes, but the cause is not a change: {cause!r}.")
    if named is not None:
        chosen = _make_handlers(named, context)
    elif registry is not None:
        chosen = _select_handlers(registry, cause if cause is not None else context.cause, context)
    else:
        chosen = list(handlers) if handlers is not None else list(context.declared)
    await context.execute(context, chosen, cause=cause, lifecycle=lifecycle)


def _name_functions(fns: Fns) -> Sequence[tuple[str, Callable[..., Any]]]:
    if not isinstance(fns, Iterable):
        raise DeclarationError.at_caller(f"fns= must be a mapping or an iterable of functions, got {fns!r}.")
    named = [*fns.items()] if isinstance(fns, Mapping) else [(get_callable_id(fn), fn) for fn in fns]
    for _, fn in named:
        if not callable(fn):
            raise DeclarationError.at_caller(f"A sub-handler must be a function, got {fn!r}.")
    return named


def _make_handlers(
    named: Iterable[tuple[str, Callable[..., Any]]], context: SubhandlingContext
) -> Sequence[ChangingHandler]:
    handlers = [
        ChangingHandler(
            id=context.make_id(name),
            fn=fn,
            selector=None,
            reason=None,
            scope=context.parent.field or context.parent.scope,
            model=context.parent.model,
        )
        for name, fn in named
    ]
    check_handlers(handlers, context.cause.indices)
    return handlers


def _select_handlers(
    registry: OperatorRegistry, cause: ChangingCause, context: SubhandlingContext
) -> Sequence[ChangingHandler]:
    plan = registry.plan([cause.resource]).get(cause.resource)
    if plan is None:
        return []
    selection = Selection(cause)
    called = selection.select_called(selection.select_accompanying(plan.changing))
    for error in selection.failures.values():
        raise error
    return [replace(handler, id=context.make_id(handler.id)) for handler in called]
