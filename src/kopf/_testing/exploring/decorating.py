"""
The decorators by which a test becomes an exploration, or a description of an object becomes a walk of its schema.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from kopf._testing.exploring.explorations import Choices, Exploration
from kopf._testing.exploring.schema_walks import SchemaWalk
from kopf._testing.exploring.subjects import Source, Subject
from kopf._testing.exploring.walks import Manifest

Test = Callable[..., Any]
Describe = Callable[[], Manifest]
_CHOICES = frozenset(Choices.__annotations__)


class Explored(Protocol):
    """The test as it becomes: a function that runs it many times, and fails if it does not converge."""

    exploration: Exploration

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


class Walked(Protocol):
    """The description as it becomes: a function that does all the walks, and fails if they do not come out the same."""

    walk: SchemaWalk

    def __call__(self) -> None: ...


def explore(*paths: str | pathlib.Path, only: str = "", **options: Any) -> Callable[[Test], Explored]:
    """
    Run the test many times, with other trouble each time, and expect that it always comes to the same end.

    The test is a function of a simulation, the argument ``simulation`` or the first one: a coroutine function, or
    a regular one, which gets a :class:`SyncSimulation`. It becomes a regular function of all the other arguments, which
    are fixtures and parameters for pytest; they are the same in all runs. Its attribute ``exploration`` is for those
    who want to look into it: see :class:`Exploration`.

    :param paths: the files of the operator, as for :class:`Simulation`.
    :param only: the name of the only variant to run, to look into it.
    :param options: what is explored (``troubles``, ``runs``, ``seconds``), what is compared (``ignore``,
        ``observe``, ``tracebacks``), and all the options of :class:`Simulation`. Those in the mark
        ``pytest.mark.simulation`` of the test or of its module are taken, too.
    """
    _check_paths(paths)
    simulated, choices = _sort_out(options)

    def decorate(test: Test) -> Explored:
        subject = Subject(test)
        signature = subject.signature

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            arguments = signature.bind(*args, **kwargs).arguments
            exploration.given(**arguments).explore(only=only).check()

        exploration = Exploration(subject, Source(run, paths, simulated), choices)
        explored = cast(Explored, run)
        explored.exploration = exploration
        run.__signature__ = signature  # type: ignore[attr-defined]  # so that nobody looks for a fixture `simulation`
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
    :param options: as for :func:`explore`; there is no trouble here. The definition of the kind must be in ``crds``, or
        be that of a model.
    """
    _check_paths(paths)
    simulated, choices = _sort_out(options)

    def decorate(describe: Describe) -> Walked:
        @functools.wraps(describe)
        def run() -> None:
            walk.explore(only=only).check()

        walk = SchemaWalk(describe, Source(run, paths, simulated), choices)
        walked = cast(Walked, run)
        walked.walk = walk
        return walked

    return decorate


def _check_paths(paths: tuple[Any, ...]) -> None:
    if any(map(callable, paths)):
        raise TypeError("The decorator needs parentheses, even if there is nothing inside: @explore(), @walk_schema().")


def _sort_out(options: dict[str, Any]) -> tuple[dict[str, Any], Choices]:
    """Tell the options of simulations from what is chosen to be explored."""
    choices = cast(Choices, {key: value for key, value in options.items() if key in _CHOICES})
    return {key: value for key, value in options.items() if key not in _CHOICES}, choices
