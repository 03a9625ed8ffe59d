"""
Reading: which of the arguments a function looks at, so that the others need not be made for every call of it.

Handlers get everything by keywords, and collect what they do not need by ``**_``. A parameter that is not mentioned in
the code of its function is not read, except by those who look at the frames: then, everything counts as read.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from kopf._values.functions import get_function

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
