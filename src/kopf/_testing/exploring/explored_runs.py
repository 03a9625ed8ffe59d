"""
Explored runs: one run of the test, with or without trouble, and its final state. If the objects of the test are deleted
in the end, nothing that was created for them may be left.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from unittest import mock

import kopf_cluster
from kopf._testing.exploring.final_states import FinalState, Story, read_objects
from kopf._testing.exploring.problems import Problem, describe_failure, find_endless_calls, find_tracebacks
from kopf._testing.facade import SyncSimulation
from kopf._testing.simulation import Simulation
from kopf._virtual_time.journal import ObjectPlace, Write
from kopf._virtual_time.patience import SimulationError

Test = Callable[[Any], Any]
"""A function of a simulation, either regular or a coroutine function."""
Trouble = Callable[[Simulation], object]
"""Makes or schedules the trouble in a new simulation."""
Ending = Callable[[Simulation], Awaitable[None]]

CALM = 130.0
"""How long nothing must happen to consider everything settled, in seconds: two default delays of retries."""
_HORIZON = 900.0
"""How long it may take to settle after the test, in seconds: enough for a dozen retries, one a minute."""
_DOWNTIME = 10
"""How long the operator is stopped while the objects are deleted, in seconds."""
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def list_created(simulation: Simulation, *, by_operator: bool, since: int = 0) -> list[ObjectPlace]:
    """List the objects created by the operator or by the test, since the given entry of the journal."""
    return list(
        dict.fromkeys(
            entry.place
            for entry in list(simulation.journal)[since:]
            if isinstance(entry, Write)
            and entry.type == "ADDED"
            and entry.resource != _DEFINITIONS
            and not entry.author.startswith("system:")
            and (entry.author == simulation.user) == by_operator
        )
    )


def list_wanted(simulation: Simulation) -> list[ObjectPlace]:
    """List the test's objects that the operator handles: custom resources, or, if there are none, all objects."""
    places = list_created(simulation, by_operator=False)
    custom = {
        entry.name
        for entry in simulation.journal
        if isinstance(entry, Write) and entry.type == "ADDED" and entry.resource == _DEFINITIONS
    }
    return [place for place in places if place[0] in custom] or places


async def delete_created(simulation: Simulation) -> None:
    """Request the deletion of all the test's objects that still exist."""
    for resource, namespace, name in list_wanted(simulation):
        try:
            await simulation.cluster.aio.delete(resource, name, namespace=namespace or "default")
        except kopf_cluster.APIStatus as e:
            if e.code != 404:
                raise


async def delete_during_downtime(simulation: Simulation) -> None:
    """Delete the test's objects while the operator is stopped."""
    await simulation.stop()
    await delete_created(simulation)
    await simulation.advance(seconds=_DOWNTIME)
    await simulation.restart()


async def find_leftovers(simulation: Simulation, since: int) -> list[Problem]:
    """Find the leftovers after the deletion: the objects themselves, and later objects of the operator."""
    problems = []
    made = list_created(simulation, by_operator=True, since=since)
    for resource, namespace, name in [*list_wanted(simulation), *made]:
        obj = await simulation.find(resource, name, namespace=namespace or "default")
        if obj is not None:
            finalizers = ", ".join(obj["metadata"].get("finalizers", ()))
            reason = f", because of its finalizers: {finalizers}" if finalizers else ""
            problems.append(
                Problem(f"leftover {resource}", f"{resource} {namespace}/{name}: it is left after the deletion{reason}")
            )
    return problems


ENDINGS: Mapping[str, Ending | None] = {
    "": None,
    "deletion": delete_created,
    "deletion during downtime": delete_during_downtime,
}
"""The ways to end a run, by their names."""


def no_trouble(simulation: Simulation) -> None:
    """Make no trouble."""


def only_listen(simulation: Simulation) -> None:
    """Make no trouble, but note the watch events that the operator gets."""
    simulation.faults.events.listen()


@dataclasses.dataclass(kw_only=True)
class ExploredRun:
    """One run of a test: what to do in it, and what to look at in the end."""

    test: Test
    """The test: what users do."""
    is_async: bool = True
    """Whether it is a coroutine function; otherwise, it gets a :class:`SyncSimulation`."""
    trouble: Trouble = no_trouble
    deletion: Ending | None = None
    """How to delete the test's objects in the end, if at all; if so, leftovers are problems."""
    observe: Callable[[], Mapping[str, Any]] = dict
    """Returns the state outside of the cluster."""
    ignored: Collection[str] = ()
    """The kinds and fields to leave out."""
    tracebacks: bool = True
    """Whether tracebacks in the logs are problems."""
    is_harmed: bool = False
    """Whether requests are refused or broken, so that clients' errors are expected."""
    is_test_judged: bool = True
    """Whether the test must pass."""

    def run(self, *paths: Any, **options: Any) -> FinalState:
        """Run the test in a new simulation with these options, and return its final state."""
        final = FinalState(objects={}, is_comparable=False)
        try:
            # The logs stay within the simulation: nobody wants to read the logs of a hundred runs.
            keeping_logs = mock.patch.object(logging.getLogger("kopf"), "propagate", False)
            with keeping_logs, SyncSimulation(*paths, **options) as facade:
                self._run(facade, final)
        except Exception as e:
            final.problems.append(describe_failure("the simulation fails", e))
        final.problems = list({problem.key: problem for problem in final.problems}.values())
        return final

    def _run(self, facade: SyncSimulation, final: FinalState) -> None:
        """Run the test and its ending, and put what came out into the final state."""
        simulation, outside_before = facade.simulation, dict[str, Any]()
        since = len(simulation.journal)
        simulation.when(step=1, do=lambda: outside_before.update(self.observe()))
        self.trouble(simulation)
        try:
            self._run_test(facade, final)
            final.problems += facade.run(_settle(simulation))
            final.story = _measure(simulation, since)
            if self.deletion is None:
                final.objects = facade.run(read_objects(simulation, self.ignored))
                final.outside = {key: value for key, value in self.observe().items() if key not in self.ignored}
                final.is_comparable = True
            else:
                final.problems += facade.run(self._delete(simulation, self.deletion, since, outside_before))
        finally:
            final.journal = str(simulation.journal)
            final.overlaps = [f"{one}, and {other}" for one, other in sorted(simulation.journal.overlaps)]
            if self.tracebacks:
                final.problems += find_tracebacks(simulation.logs, is_harmed=self.is_harmed)

    def _run_test(self, facade: SyncSimulation, final: FinalState) -> None:
        try:
            if self.is_async:
                facade.run(self.test(facade.simulation))
            else:
                self.test(facade)
        except Exception as e:
            if self.is_test_judged:
                final.problems.append(describe_failure("the test fails", e))

    async def _delete(
        self, simulation: Simulation, deletion: Ending, since: int, outside_before: Mapping[str, Any]
    ) -> list[Problem]:
        await deletion(simulation)
        problems = [*await _settle(simulation), *await find_leftovers(simulation, since)]
        for key, value in self.observe().items():
            if key not in self.ignored and value and value != outside_before.get(key):
                problems.append(Problem(f"leftover {key}", f"outside: {key}={value!r} is left after the deletion"))
        return problems


async def _settle(simulation: Simulation) -> list[Problem]:
    """Wait until everything settles; if it does not, return the handlers that are called endlessly."""
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
        writes=simulation.writes,
        changes=len(changes),
        steps=len(steps),
        events=tuple(simulation.faults.events.seen),
    )
