"""Functions of the users: which one it is, behind partials, methods, and decorators, and where it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def describe_function(fn: Callable[..., Any]) -> str:
    """
    Name a function for the logs: that of the users, not of their decorators; and where it is, if that is known.

    The path is a full one: logs are read elsewhere than declarations.
    """
    function = inspect.unwrap(get_function(fn))
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    code = getattr(get_function(function), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def get_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Get the function behind a partial, a method, a callable instance; what it wraps is another function."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not hasattr(fn, "__code__") and not isinstance(fn, type) and hasattr(type(fn).__call__, "__code__"):
        fn = type(fn).__call__
    inner: Callable[..., Any] = getattr(fn, "__func__", fn)
    return inner
