"""
Subjects: the explored tests with their arguments besides the simulation; and the sources of their operators.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
from collections.abc import Callable, Mapping, Sequence
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
        """Its parameters besides the simulation."""
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


class Source:
    """
    The files of the operator, and the options of :class:`Simulation`.

    They are in the decorator, and in the mark of the fixture ``simulation``: that of the function, else of its module.
    Marks can be made after the decorator, so they are looked for when the source is needed.

    :param function: the function as it is in its module.
    """

    def __init__(
        self, function: Callable[..., Any], paths: Sequence[str | pathlib.Path], options: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._paths = paths
        self._options = options

    @property
    def paths(self) -> Sequence[str | pathlib.Path]:
        """The files of the operator: those in the mark if the decorator has none."""
        return self._paths or self._mark[0]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the simulation: the options of the decorator override the options in the mark."""
        return {**self._mark[1], **self._options}

    @functools.cached_property
    def _mark(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        for holder in (self._function.__dict__, inspect.unwrap(self._function).__globals__):
            marks = holder.get("pytestmark", ())
            for mark in marks if isinstance(marks, list | tuple) else [marks]:
                if mark.name == "simulation":
                    return mark.args, mark.kwargs
        return (), {}


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
