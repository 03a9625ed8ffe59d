"""
The decorators that turn a test into an exploration, or a description of an object into a walk of its schema.
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
    """A decorated test: a function that runs the test many times, and fails if the results differ."""

    exploration: Exploration

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


class Walked(Protocol):
    """A decorated description: a function that does all walks, and fails if the results differ."""

    walk: SchemaWalk

    def __call__(self) -> None: ...


def explore(*paths: str | pathlib.Path, only: str = "", **options: Any) -> Callable[[Test], Explored]:
    """
    Run the test many times, each time with another trouble, and expect the same result each time.

    The test takes a simulation as the argument ``simulation`` or as its first one. It is either a coroutine function or
    a regular function, which gets a :class:`SyncSimulation`. The decorated test is a regular function of the other
    arguments (fixtures and parameters of pytest); they are the same in all runs. Its attribute ``exploration`` is the
    :class:`Exploration`, e.g. to run a single variant by hand.

    :param paths: the files of the operator, as for :class:`Simulation`.
    :param only: the name of the only variant to run, e.g. to debug it.
    :param options: the scope (``troubles``, ``runs``, ``seconds``), the comparison (``ignore``, ``observe``,
        ``tracebacks``), and all options of :class:`Simulation`. The options in the mark ``pytest.mark.simulation`` of
        the test or of its module also apply.
    """
    simulated, choices = _sort_out(paths, options)

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
        run.__signature__ = signature  # type: ignore[attr-defined]  # so that pytest does not look for a fixture `simulation`
        return explored

    return decorate


def walk_schema(*paths: str | pathlib.Path, only: str = "", **options: Any) -> Callable[[Describe], Walked]:
    """
    Change the fields of an object to the edge values that its schema permits: each field alone, then pairs of fields.

    After each change, everything else in the cluster and outside must be as if the object had been created with the
    new values; when the changes are undone, it must be as before. Nothing may be left when the object is deleted.

    The decorated function returns the initial object. It becomes a test of pytest, with no arguments and no result. Its
    attribute ``walk`` is the :class:`SchemaWalk`, e.g. to do a single walk by hand.

    :param paths: the files of the operator, as for :class:`Simulation`.
    :param only: the name of the only walk to do, e.g. to debug it.
    :param options: as for :func:`explore`, but without troubles. The definition of the kind must be in ``crds``, or
        come from a model.
    """
    simulated, choices = _sort_out(paths, options)

    def decorate(describe: Describe) -> Walked:
        @functools.wraps(describe)
        def run() -> None:
            walk.explore(only=only).check()

        walk = SchemaWalk(describe, Source(run, paths, simulated), choices)
        walked = cast(Walked, run)
        walked.walk = walk
        return walked

    return decorate


def _sort_out(paths: tuple[Any, ...], options: dict[str, Any]) -> tuple[dict[str, Any], Choices]:
    """Split the options into options of simulations and options of the exploration."""
    if any(map(callable, paths)):
        raise TypeError("The decorator needs parentheses, even without options: @explore(), @walk_schema().")
    choices = cast(Choices, {key: value for key, value in options.items() if key in _CHOICES})
    return {key: value for key, value in options.items() if key not in _CHOICES}, choices
