"""Sub-handlers, declared inside of a running handler. They are executed after it, or by :func:`kopf.execute`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kopf._handlers.current_handler import NoSubhandlingError, current_subhandling
from kopf._handlers.declarations import check_function
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.signatures import check_handlers
from kopf._values.fields import FieldSpec, parse_field
from kopf._values.ids import make_handler_id


def declare_subhandler(
    fn: Callable[..., Any],
    *,
    id: str | None = None,
    field: FieldSpec = None,
    **options: Any,
) -> None:
    """
    Declare the function as a sub-handler of the running handler; see :func:`kopf.subhandler`.

    Raises :class:`LookupError` outside of handlers of changes.
    """
    check_function(fn)
    context = current_subhandling.get(None)
    if context is None:
        raise NoSubhandlingError("Sub-handlers can only be declared while a handler of changes is being executed.")
    parent, path = context.parent, parse_field(field)
    scope = parent.field or parent.scope
    # The field is not a part of the id, unlike in other handlers, unless two sub-handlers would have the same id.
    name = context.make_id(make_handler_id(fn, id))
    if path and any(item.id == name for item in context.declared):
        name = context.make_id(make_handler_id(fn, id, path))
    handler = ChangingHandler(
        id=name,
        fn=fn,
        selector=None,
        reason=None,
        field=(*scope, *path) if path else (),  # a sub-handler sees the same part of the object as its parent
        field_needs_change=parent.field_needs_change,
        scope=scope,
        model=parent.model,
        **options,
    )
    check_handlers([handler], context.cause.indices)
    context.declared.append(handler)
