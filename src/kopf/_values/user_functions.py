"""
Functions of users: their names, places, arguments, and failures.

Handlers get everything by keywords, and collect the rest by ``**_``. If the code of a function never reads ``_``, the
function can read only its named parameters, so Kopf does not make the other arguments for each call. Functions that
look at frames can read all arguments.
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
"""The functions that show all local variables of their callers."""


NO_TEXT = "<exception str() failed>"
"""The text of errors whose classes fail to make it; the same as in tracebacks."""


class CallbackError(Exception):
    """A callback has failed. The text names the callback, its handler, and its place; the cause is the error."""


class FilterError(CallbackError):
    """A callback of a filter has failed, so it is unknown whether the handler accepts the object."""


def explain(callback: Callable[..., Any], place: str, error: BaseException) -> str:
    """Describe a failed callback, with the ``place`` of its declaration in words."""
    failure = f"{type(error).__name__}: {get_text(error)}"
    return f"The callback {describe_function(callback)} in {place} has failed: {failure}"


def get_text(error: BaseException) -> str:
    """Return the text of the error, or :data:`NO_TEXT` if its class fails to make it."""
    try:
        return str(error)
    except Exception:
        return NO_TEXT


@contextlib.contextmanager
def explaining(callback: Callable[..., Any], place: str) -> Iterator[None]:
    """Turn any error of a synchronous callback into :class:`CallbackError`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # e.g. a cancellation from the result of a cancelled task
        raise CallbackError(explain(callback, place, e)) from e


def describe_function(fn: Callable[..., Any]) -> str:
    """
    Name a function for the logs, and its file and line, if known. It is the innermost wrapped function.

    The path is absolute, as people read logs elsewhere.
    """
    function = inspect.unwrap(get_function(fn))
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    code = getattr(get_function(function), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def get_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Get the function behind a partial, a method, or a callable instance. It can still be a wrapper of another one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not hasattr(fn, "__code__") and not isinstance(fn, type) and hasattr(type(fn).__call__, "__code__"):
        fn = type(fn).__call__
    inner: Callable[..., Any] = getattr(fn, "__func__", fn)
    return inner


def list_read_arguments(fn: Callable[..., Any]) -> frozenset[str] | None:
    """List the names of the keyword arguments that the function can read; ``None`` if it can read all arguments."""
    function = get_function(fn)
    if not inspect.isfunction(function) or hasattr(function, "__signature__"):
        return None
    return _list_read_arguments(function.__code__)


@functools.lru_cache(maxsize=1000)  # parents declare their sub-handlers again in each call
def _list_read_arguments(code: types.CodeType) -> frozenset[str] | None:
    if not code.co_flags & inspect.CO_VARKEYWORDS or not _FRAME_READERS.isdisjoint(code.co_names):
        return None
    named = code.co_argcount + code.co_kwonlyargcount
    others = code.co_varnames[named + bool(code.co_flags & inspect.CO_VARARGS)]
    if others in code.co_freevars or any(_mentions(item, others) for item in dis.get_instructions(code)):
        return None
    return frozenset(code.co_varnames[:named])


def _mentions(instruction: dis.Instruction, name: str) -> bool:
    value = instruction.argval  # since Python 3.13, an instruction can have two variables
    return name == value or (isinstance(value, tuple) and name in value)


def can_return_value(fn: Callable[..., Any]) -> bool:
    """Tell if the function can return anything but ``None``, by its code. Without code, returns true."""
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
