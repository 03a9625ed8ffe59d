"""
Subjects: the tests that are explored, with what they are given besides the simulation.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any


class Subject:
    """
    A test, and its arguments: fixtures and parameters of pytest, which are the same in all runs.

    The simulation is the argument of this name, or the first one.
    """

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self.arguments: Mapping[str, Any] = {} if arguments is None else arguments
        self.parameter = _find_simulation(function)
        """The name of the argument for the simulation."""

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def signature(self) -> inspect.Signature:
        """What it needs besides the simulation."""
        signature = inspect.signature(self.function)
        rest = [parameter for name, parameter in signature.parameters.items() if name != self.parameter]
        return signature.replace(parameters=rest, return_annotation=None)

    def call(self, simulation: Any) -> Any:
        """Call the test; it gives a coroutine if it is a coroutine function."""
        return self.function(**self.arguments, **{self.parameter: simulation})

    @property
    def path(self) -> str:
        """The path of its file, relative to the current directory if it is there."""
        return find_file(self.function)

    @property
    def is_importable(self) -> bool:
        """Whether others can find it by its file and name, and give it the same arguments."""
        return self.function.__qualname__.isidentifier() and all(map(_is_literal, self.arguments.values()))


def find_file(function: Any) -> str:
    """Give the path of the function's file, relative to the current directory if it is there."""
    path = pathlib.Path(inspect.getfile(function))
    return str(path.relative_to(pathlib.Path.cwd())) if path.is_relative_to(pathlib.Path.cwd()) else str(path)


def _find_simulation(function: Callable[..., Any]) -> str:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind in named]
    others = names[1:] if names[:1] == ["self"] else names
    if not others:
        raise TypeError("An explored test needs an argument for the simulation: async def test_it(simulation): ...")
    return "simulation" if "simulation" in others else others[0]


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
