"""Names of handlers, as they appear in logs, in the progress records, and in the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType

HandlerId = NewType("HandlerId", str)
"""A unique id of a handler, e.g. ``create_fn``, ``create_fn/spec.field``, ``create_fn/sub``."""


def get_callable_id(fn: Callable[..., Any]) -> str:
    """
    Derive a readable id from anything callable: functions, methods, partials, wrappers, lambdas, callable instances.

    It is the qualified name (PEP 3155), e.g. ``create_fn``, ``Database.create``, ``factory.<locals>.fn``: the methods
    of several classes are told apart even if their names are the same. Lambdas are told apart by the line of code
    they are in, so that the id stays the same over restarts.
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
