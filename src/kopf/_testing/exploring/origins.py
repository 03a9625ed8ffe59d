"""
Origins: where the operator and its simulation come from, as decorators and marks of pytest tell.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
        """The options of the simulation: those of the decorator go before those in the mark."""
        return {**self._mark[1], **self._options}

    @functools.cached_property
    def _mark(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        for holder in (self._function.__dict__, inspect.unwrap(self._function).__globals__):
            marks = holder.get("pytestmark", ())
            for mark in marks if isinstance(marks, list | tuple) else [marks]:
                if mark.name == "simulation":
                    return mark.args, mark.kwargs
        return (), {}
