"""
The decorators by which a test becomes an exploration, or a description of an object becomes a walk of its schema.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from kopf._testing.exploring.explorations import Choices, Exploration, Source
from kopf._testing.exploring.scenes import Test
from kopf._testing.exploring.schema_walks import SchemaWalk
from kopf._testing.exploring.walks import Manifest

Describe = Callable[[], Manifest]
_CHOICES = frozenset(Choices.__annotations__)


class Explored(Protocol):
    """The test as it becomes: a function that runs it many times, and fails if it does not converge."""

    exploration: Exploration

    def __call__(self) -> None: ...


class Walked(Protocol):
    """The description as it becomes: a function that does all the walks, and fails if they do not come out the same."""

    walk: SchemaWalk

    def __call__(self) -> None: ...


def explore(*paths: str | pathlib.Path, only: str = "", **options: Any) -> Callable[[Test], Explored]:
    """
    Run the test many times, with other trouble each time, and expect that it always comes to the same end.

    The test is a function of one argument, the simulation: a coroutine function, or a regular one, which gets
    a :class:`SyncSimulation`. It becomes a function with no arguments: for pytest, a test that needs no fixture.
    Its attribute ``exploration`` is for those who want to look into it: see :class:`Exploration`.

    :param paths: the files of the operator, as for :class:`Simulation`.
    :param only: the name of the only variant to run, to look into it.
    :param options: what is explored (``troubles``, ``runs``, ``seconds``), what is compared (``ignore``,
        ``observe``, ``tracebacks``), and all the options of :class:`Simulation`. Those in the mark
        ``pytest.mark.simulation`` are taken, too.
    """

    def decorate(test: Test) -> Explored:
        if len(inspect.signature(test).parameters) != 1:
            raise TypeError(
                "An explored test has one argument, the simulation: "
                "all that it needs besides must be made anew in every run, i.e. inside of it."
            )
        exploration = Exploration(test, *_sort_out(test, paths, options))

        @functools.wraps(test)
        def run() -> None:
            exploration.explore(only=only).check()

        explored = cast(Explored, run)
        explored.exploration = exploration
        run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]  # so that nobody looks for a fixture
        return explored

    return decorate


def walk_schema(*paths: str | pathlib.Path, only: str = "", **options: Any) -> Callable[[Describe], Walked]:
    """
    Let the fields of an object become all that its schema permits, at the edges: each one alone, then by pairs.

    All the rest, in the cluster and outside, must come out as if the object was created so at once; and as it was
    before, when the fields are as they were before. Nothing may be left when the object is deleted.

    The function gives the object to begin with. It becomes a function that gives nothing: for pytest, a test. Its
    attribute ``walk`` is for those who want to look into it: see :class:`SchemaWalk`.

    :param paths: the files of the operator, as for :class:`Simulation`.
    :param only: the name of the only walk to do, to look into it.
    :param options: as for :func:`explore`; there is no trouble here. The definition of the kind must be in ``crds``.
    """

    def decorate(describe: Describe) -> Walked:
        walk = SchemaWalk(describe, *_sort_out(describe, paths, options))

        @functools.wraps(describe)
        def run() -> None:
            walk.explore(only=only).check()

        walked = cast(Walked, run)
        walked.walk = walk
        return walked

    return decorate


def _sort_out(
    function: Callable[..., Any], paths: tuple[str | pathlib.Path, ...], options: dict[str, Any]
) -> tuple[Source, Choices]:
    """Tell the options of simulations from the others; some of them are in the mark of the fixture `simulation`."""
    marked_paths, marked_options = _read_mark(function)
    known = {**marked_options, **options}
    choices = cast(Choices, {key: value for key, value in known.items() if key in _CHOICES})
    rest = {key: value for key, value in known.items() if key not in _CHOICES}
    return Source(paths or marked_paths, rest), choices


def _read_mark(test: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the operator from the mark of the fixture `simulation`, if the test has it."""
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "simulation":
            return mark.args, dict(mark.kwargs)
    return (), {}
