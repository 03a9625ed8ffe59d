"""
Functions of users: which one it is, where it is, what it looks at, and what is said if it fails.

Handlers get everything by keywords, and collect what they do not need by ``**_``. A parameter that is not mentioned in
the code of its function is not read, so it need not be made for every call; except by those who look at the frames:
then, everything counts as read.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

_FRAME_READERS = frozenset(
    {
        "_getframe",
        "breakpoint",
        "currentframe",
        "dir",
        "eval",
        "exec",
        "locals",
        "set_trace",
        "stack",
        "vars",
    }
)
"""What shows all local variables to those who call it."""


class CallbackError(Exception):
    """A callback has failed; the text says which one, of whom, and where it is; the cause says why."""


class FilterError(CallbackError):
    """A callback of a filter has failed, so it is unknown whether the handler is for the object."""


def explain(callback: Callable[..., Any], place: str, error: Exception) -> str:
    """Say which callback has failed, with the ``place`` where it was given, in words."""
    return f"The callback {describe_function(callback)} in {place} has failed: {type(error).__name__}: {error}"


@contextlib.contextmanager
def explaining(callback: Callable[..., Any], place: str) -> Iterator[None]:
    """Turn any error into :class:`CallbackError`."""
    try:
        yield
    except Exception as e:
        raise CallbackError(explain(callback, place, e)) from e


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


def list_read_arguments(fn: Callable[..., Any]) -> frozenset[str] | None:
    """Give the names of the keyword arguments that the function can look at; ``None`` if it can look at all of them."""
    function = get_function(fn)
    if not inspect.isfunction(function) or hasattr(function, "__signature__"):
        return None
    return _list_read_arguments(function.__code__)


@functools.lru_cache(maxsize=1000)  # sub-handlers are declared again in every call of their parents
def _list_read_arguments(code: types.CodeType) -> frozenset[str] | None:
    if not code.co_flags & inspect.CO_VARKEYWORDS or not _FRAME_READERS.isdisjoint(code.co_names):
        return None
    named = code.co_argcount + code.co_kwonlyargcount
    others = code.co_varnames[named + bool(code.co_flags & inspect.CO_VARARGS)]
    if others in code.co_freevars or any(_mentions(item, others) for item in dis.get_instructions(code)):
        return None
    return frozenset(code.co_varnames[:named])


def _mentions(instruction: dis.Instruction, name: str) -> bool:
    value = instruction.argval  # since Python 3.13, there are instructions for two variables at once
    return name == value or (isinstance(value, tuple) and name in value)


def can_return_value(fn: Callable[..., Any]) -> bool:
    """Tell if the function can return anything but ``None``, as far as its code shows; so can what is not known."""
    code = getattr(get_function(fn), "__code__", None)
    if not isinstance(code, types.CodeType):
        return True
    previous: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        value = previous if instruction.opname == "RETURN_VALUE" else instruction
        if instruction.opname in ("RETURN_CONST", "RETURN_VALUE") and (
            value is None or not value.opname.endswith("_CONST") or value.argval is not None
        ):
            return True
        previous = instruction
    return False
