"""Ids of handlers, as they appear in logs, progress records, and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType

from kopf._values.fields import FieldPath

HandlerId = NewType("HandlerId", str)
"""The id of a handler: a string, e.g. ``create_fn``, ``create_fn/spec.field``, ``create_fn/sub``."""


def get_callable_id(fn: Callable[..., Any]) -> str:
    """
    Derive a readable id from any callable: a function, method, partial, wrapper, lambda, or callable instance.

    The id is the qualified name (PEP 3155), e.g. ``create_fn``, ``Database.create``, ``factory.<locals>.fn``, so
    methods with the same name in several classes have different ids. The id of a lambda has its file and line, so it
    is the same after a restart.
    """
    if (func := getattr(fn, "func", None)) is not None:  # functools.partial
        return get_callable_id(func)
    if (wrapped := getattr(fn, "__wrapped__", None)) is not None:
        return get_callable_id(wrapped)
    name: str | None = getattr(fn, "__name__", None)
    if name == "<lambda>":
        code = fn.__code__
        return f"lambda:{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    if name is None:
        return type(fn).__qualname__
    qualified: str = getattr(fn, "__qualname__", name)
    return qualified


def make_handler_id(fn: Callable[..., Any], id: str | None, path: FieldPath = ()) -> HandlerId:
    """Make the id of a handler: the given one, or that of its function, with the field of the handler, if any."""
    name = id if id is not None else get_callable_id(fn)
    return HandlerId(f"{name}/{'.'.join(path)}" if path else name)
