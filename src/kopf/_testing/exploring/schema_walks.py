"""
Walks of a schema: after any change of an object, the result must be as if the object had been created that way.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kopf_cluster
from kopf._testing.exploring.exploration_progress import Budget, try_all
from kopf._testing.exploring.explorations import Choices
from kopf._testing.exploring.explored_runs import CALM, ENDINGS, ExploredRun
from kopf._testing.exploring.final_states import FinalState
from kopf._testing.exploring.reports import Report, Trial, make_excerpt, write_walk_script
from kopf._testing.exploring.subjects import Source
from kopf._testing.exploring.walks import Manifest, Walk, list_changes, make_walks
from kopf._testing.simulated_objects import make_merge_patch
from kopf._testing.simulation import Simulation
from kopf._virtual_time.patience import SimulationError

_DEFINITIONS = "customresourcedefinitions"
_REFUSALS = (400, 422)
"""The HTTP statuses of the API's refusals of what the schema does not permit."""


class SchemaWalk:
    """
    The walks of an object: its fields are set to the edge values of its schema, each field alone, then in pairs.

    :param describe: the function that returns the initial object.
    """

    def __init__(self, describe: Callable[[], Manifest], source: Source, choices: Choices) -> None:
        self._describe = describe
        self._source = source
        self._choices = choices
        self._object = WalkedObject(describe())
        self._known: dict[str, FinalState] = {}

    def run(self, *states: Manifest, ending: str = "") -> FinalState:
        """
        Create the object in the first state, change it to the other states one by one, and return all other objects.

        :param ending: ``"deletion"`` to delete the object in the end and look for leftovers.
        """

        async def live(simulation: Simulation) -> None:
            self._describe()  # for its side effects, e.g. on the state outside of the cluster
            await self._object.live(simulation, states)

        explored = ExploredRun(
            test=live,
            deletion=ENDINGS[ending],
            observe=self._choices.get("observe", dict),
            ignored=self._choices.get("ignore", ()),
            tracebacks=self._choices.get("tracebacks", True),
        )
        final = explored.run(*self._source.paths, **{"slack": CALM, **self._source.options})
        others = {name: obj for name, obj in final.objects.items() if name != self._object.label}
        return dataclasses.replace(final, objects=others)

    def explore(self, *, only: str = "") -> Report:
        """
        Do all walks. Walks that the API refuses do not count.

        :param only: the name of the only walk to do.
        """
        began = time.monotonic()
        base = self._describe()
        baseline = self._run_once(base)
        baseline.raise_error()
        walks = [walk for walk in make_walks(base, list_changes(self._object.schema, base)) if only in ("", walk.name)]
        if not walks:
            raise ValueError(f"There is no walk{f' {only!r}' if only else ': no field has a schema'}.")
        budget = Budget(self._choices.get("runs"), self._choices.get("seconds"))
        return try_all(walks, lambda chosen: (self._try(walk, baseline) for walk in chosen), budget, began)

    def _try(self, walk: Walk, baseline: FinalState) -> Trial | None:
        """Do the walk; return ``None`` if the API refuses it."""
        expected = self._run_once(walk.expected)
        if _is_refused(expected):
            return None
        if len(walk.states) > 1:
            final = self.run(*walk.states, ending=walk.ending)
        else:  # there is nothing to compare it with, but it must not fail
            final, expected = dataclasses.replace(expected, is_comparable=False), baseline
        if _is_refused(final):
            return None
        differences = final.compare(expected)
        if not differences:
            return Trial(name=walk.name, kind=walk.kind)
        return Trial(
            name=walk.name,
            kind=walk.kind,
            differences=differences,
            excerpt=make_excerpt(final.journal, baseline.journal),
            script=write_walk_script(self._describe, walk),
        )

    def _run_once(self, state: Manifest) -> FinalState:
        """Create the object in this state, or return the remembered result."""
        key = json.dumps(state, sort_keys=True)
        if key not in self._known:
            self._known[key] = self.run(state)
        return self._known[key]


class WalkedObject:
    """The object of the walks, with its schema once it is known."""

    def __init__(self, manifest: Manifest) -> None:
        group, _, self._version = str(manifest["apiVersion"]).rpartition("/")
        self._kind = f"{manifest['kind']}.{self._version}.{group}"
        self._name = manifest["metadata"]["name"]
        self._namespace = manifest["metadata"].get("namespace", "default")
        self.schema: Mapping[str, Any] = {}
        self.label = ""
        """Its name in final states."""

    async def live(self, simulation: Simulation, states: Sequence[Manifest]) -> None:
        """Create it in the first state, and change it to the others."""
        await self._learn(simulation)
        await simulation.apply(states[0])
        await simulation.settle()
        for before, after in itertools.pairwise(states):
            patch = make_merge_patch(before, after)
            await simulation.patch(self._kind, self._name, patch, namespace=self._namespace)
            await simulation.settle()

    async def _learn(self, simulation: Simulation) -> None:
        _, plural, is_namespaced = simulation.cluster.resolve_kind(self._kind)
        definition = await simulation.find(_DEFINITIONS, plural)
        if definition is None:
            raise SimulationError(f"There is no custom resource definition {plural}, so there is no schema to walk.")
        version = next(item for item in definition["spec"]["versions"] if item["name"] == self._version)
        self.schema = version["schema"]["openAPIV3Schema"]
        self.label = f"{plural} {self._namespace}/{self._name}" if is_namespaced else f"{plural} {self._name}"


def _is_refused(final: FinalState) -> bool:
    return any(
        isinstance(problem.error, kopf_cluster.APIStatus) and problem.error.code in _REFUSALS
        for problem in final.problems
    )
