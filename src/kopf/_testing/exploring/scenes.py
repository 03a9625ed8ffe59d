"""
Scenes: one run of the test, with trouble or without, and how it has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any

from kopf._testing.exploring.deletions import delete_created, delete_during_downtime, find_leftovers
from kopf._testing.exploring.final_states import FinalState, Story, read_objects
from kopf._testing.exploring.problems import Problem, describe_failure, find_endless_calls, find_tracebacks
from kopf._testing.facade import SyncSimulation
from kopf._testing.journal import Write
from kopf._testing.simulation import Simulation
from kopf._testing.simulation_errors import SimulationError

Test = Callable[[Any], Any]
"""A function of a simulation, which gives a coroutine or does it all."""
Trouble = Callable[[Simulation], object]
"""Makes or appoints trouble in a simulation that has just begun."""
Ending = Callable[[Simulation], Awaitable[None]]

CALM = 130.0
"""For how long nothing happens when all has settled, in seconds: two delays of retries as they are by default."""
_HORIZON = 900.0
"""How long it may take to settle after the test, in seconds. It is enough for a dozen of retries, one a minute."""
ENDINGS: Mapping[str, Ending | None] = {
    "": None, "deletion": delete_created, "deletion during downtime": delete_during_downtime,
}
"""How stories can end."""


def no_trouble(simulation: Simulation) -> None:
    """Let all go well."""


def only_listen(simulation: Simulation) -> None:
    """Let all go well, and take notice of what the operator is told."""
    simulation.faults.views.listen()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What is done in a run, and what is looked at."""

    test: Test
    """What is done by users."""
    is_async: bool = True
    """Whether that gives a coroutine; otherwise, it gets a :class:`SyncSimulation`."""
    trouble: Trouble = no_trouble
    deletion: Ending | None = None
    """How the test's objects are deleted in the end, if they are; then, it is looked for what is left."""
    observe: Callable[[], Mapping[str, Any]] = dict
    """What there is outside of the cluster."""
    ignored: Collection[str] = ()
    """Which kinds and fields do not matter."""
    tracebacks: bool = True
    """Whether tracebacks in the logs matter."""
    is_harmed: bool = False
    """Whether requests are refused or broken, so that errors of clients are natural."""
    is_test_judged: bool = True
    """Whether the test must pass."""

    def run(self, *paths: Any, **options: Any) -> FinalState:
        """Run it in a simulation of its own, with these options of :class:`Simulation`."""
        run = SceneRun(self)
        try:
            with _whispering(), SyncSimulation(*paths, **options) as facade:
                run.play(facade)
        except Exception as e:
            run.problems.append(describe_failure("the simulation fails", e))
        return run.conclude()


class SceneRun:
    """One run of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.problems: list[Problem] = []
        self._objects: dict[str, Any] | None = None
        self._outside: dict[str, Any] = {}
        self._outside_before: dict[str, Any] = {}
        self._story = Story()
        self._journal = ""
        self._overlaps: list[str] = []

    def play(self, facade: SyncSimulation) -> None:
        """Tell the story from its beginning to its end."""
        simulation, scene = facade.simulation, self.scene
        since = len(simulation.journal)
        simulation.when(step=1, do=lambda: self._outside_before.update(scene.observe()))
        scene.trouble(simulation)
        try:
            self._run_test(facade)
            self.problems += facade.run(_settle(simulation))
            self._story = _measure(simulation, since)
            if scene.deletion is None:
                self._look(facade.run(read_objects(simulation, scene.ignored)))
            else:
                facade.run(self._delete(simulation, scene.deletion, since))
        finally:
            self._journal = str(simulation.journal)
            self._overlaps = [f"{one}, and {other}" for one, other in sorted(simulation.journal.overlaps)]
            if scene.tracebacks:
                self.problems += find_tracebacks(simulation.logs, is_harmed=scene.is_harmed)

    def conclude(self) -> FinalState:
        """Tell how it has ended."""
        return FinalState(
            objects=self._objects or {},
            outside=self._outside,
            problems=list({problem.key: problem for problem in self.problems}.values()),
            journal=self._journal,
            overlaps=self._overlaps,
            story=self._story,
            is_comparable=self._objects is not None,
        )

    def _run_test(self, facade: SyncSimulation) -> None:
        scene = self.scene
        try:
            if scene.is_async:
                facade.run(scene.test(facade.simulation))
            else:
                scene.test(facade)
        except Exception as e:
            if scene.is_test_judged:
                self.problems.append(describe_failure("the test fails", e))

    def _look(self, objects: dict[str, Any]) -> None:
        self._objects = objects
        self._outside = {key: value for key, value in self.scene.observe().items() if key not in self.scene.ignored}

    async def _delete(self, simulation: Simulation, deletion: Ending, since: int) -> None:
        await deletion(simulation)
        self.problems += await _settle(simulation)
        self.problems += await find_leftovers(simulation, since)
        for key, value in self.scene.observe().items():
            if key not in self.scene.ignored and value and value != self._outside_before.get(key):
                self.problems.append(Problem(f"leftover {key}", f"outside: {key}={value!r} is left after the deletion"))


@contextlib.contextmanager
def _whispering() -> Iterator[None]:
    """Keep what is logged within the simulation: of a hundred runs, nobody wants to read it all."""
    logger = logging.getLogger("kopf")
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before


async def _settle(simulation: Simulation) -> list[Problem]:
    """Let all that is begun come to its end, if it does; otherwise, tell what does not."""
    try:
        await simulation.settle(calm=CALM, timeout=_HORIZON)
    except SimulationError:
        journal = simulation.journal
        return find_endless_calls(journal, journal.now - _HORIZON / 2)
    return []


def _measure(simulation: Simulation, since: int) -> Story:
    changes = [entry for entry in list(simulation.journal)[since:] if isinstance(entry, Write)]
    steps = [entry for entry in changes if entry.author != simulation.user and not entry.author.startswith("system:")]
    return Story(
        writes=simulation.writes, changes=len(changes), steps=len(steps), events=tuple(simulation.faults.views.told),
    )
