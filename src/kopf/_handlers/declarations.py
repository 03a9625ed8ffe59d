"""
Declarations that cannot work: the error for them, and their places in the code of users.

Kopf refuses them before anything runs. Otherwise, they would fail for every object, and possibly much later.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Self

from kopf._logging.tracebacks import is_framework
from kopf._values.user_functions import get_function


class DeclarationError(TypeError, ValueError):
    """
    The declarations of handlers or models cannot work. The message has one line for each problem, with its place.

    It is also a :class:`TypeError` and a :class:`ValueError`.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems: Sequence[str] = problems
        """The lines of the message."""

    def __str__(self) -> str:
        return "\n".join(self.problems)

    @classmethod
    def at_caller(cls, *problems: str) -> Self:
        """Make an error for the current line of the code of users."""
        place = find_caller_place()
        return cls(*(put_place(place, problem) for problem in problems))


def put_place(place: str | None, problem: str) -> str:
    """Prefix the problem with its place, if known."""
    return f"{place}: {problem}" if place else problem


def find_caller_place() -> str | None:
    """Find the line that calls the framework, e.g. ``handlers.py:5``; ``None`` if there is none."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        if not is_framework(frame.f_code.co_filename):
            return _format_place(frame.f_code.co_filename, line)
    return None


def find_function_place(fn: Callable[..., Any]) -> str | None:
    """Find the first line of a function, partial, method, or callable instance; ``None`` for builtins."""
    code = getattr(get_function(fn), "__code__", None)
    return _format_place(code.co_filename, code.co_firstlineno) if code is not None else None


def find_class_place(cls: type[Any]) -> str | None:
    """Find the first line of the class; ``None`` without its source."""
    try:
        return _format_place(inspect.getfile(cls), inspect.getsourcelines(cls)[1])
    except (OSError, TypeError):
        return None


def _format_place(filename: str, line: int) -> str:
    path = os.path.relpath(filename) if filename.startswith(os.getcwd() + os.sep) else filename
    return f"{path}:{line}"


def check_function(fn: Callable[..., Any]) -> None:
    """Check that it can be called without an instance or a class: handlers are called with keyword arguments only."""
    if not callable(fn):
        raise DeclarationError.at_caller(
            f"A handler must be a function, got {fn!r}. To declare a method, take it from an instance: "
            "kopf.on.create('pods')(instance.method)."
        )
    code = None if inspect.ismethod(fn) else getattr(fn, "__code__", None)
    if code is not None and code.co_argcount > 0 and code.co_varnames[0] in ("self", "cls"):
        raise DeclarationError.at_caller(
            f"{getattr(fn, '__qualname__', fn)} looks like a method, but has no instance. Decorate a function or a "
            "static method, or take the method from an instance: kopf.on.create('pods')(instance.method)."
        )
