"""
Walks of the schema: whatever the fields of an object become, it must come out as if the object was created so at once.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable

import kopf_cluster
from kopf._testing.exploring.boundary_values import list_changes
from kopf._testing.exploring.budgets import Budget
from kopf._testing.exploring.explorations import Choices
from kopf._testing.exploring.final_states import FinalState
from kopf._testing.exploring.headway import watch
from kopf._testing.exploring.origins import Source
from kopf._testing.exploring.reports import Report, Trial, make_excerpt
from kopf._testing.exploring.scenes import CALM, ENDINGS, Scene
from kopf._testing.exploring.scripts import write_walk_script
from kopf._testing.exploring.walked_objects import WalkedObject
from kopf._testing.exploring.walks import Manifest, Walk, make_walks
from kopf._testing.simulation import Simulation
from kopf.cli.garbage import collecting_rarely

_REFUSALS = (400, 422)
"""How the API refuses what the schema does not permit."""


class SchemaWalk:
    """
    An object whose fields become all that its schema permits, at the edges: each one alone, then by pairs.

    :param describe: the function that gives the object to begin with.
    """

    def __init__(self, describe: Callable[[], Manifest], source: Source, choices: Choices) -> None:
        self._describe = describe
        self._source = source
        self._choices = choices
        self._object = WalkedObject(describe())
        self._known: dict[str, FinalState] = {}

    def run(self, *states: Manifest, ending: str = "") -> FinalState:
        """
        Create the object in the first state, and let it become the others, one by one; tell what is there besides it.

        :param ending: ``"deletion"`` if the object is deleted in the end, to look for what is left.
        """

        async def live(simulation: Simulation) -> None:
            self._describe()  # and whatever else it makes anew
            await self._object.live(simulation, states)

        scene = Scene(
            test=live, deletion=ENDINGS[ending], observe=self._choices.get("observe", dict),
            ignored=self._choices.get("ignore", ()), tracebacks=self._choices.get("tracebacks", True),
        )
        final = scene.run(*self._source.paths, **{"slack": CALM, **self._source.options})
        others = {name: obj for name, obj in final.objects.items() if name != self._object.label}
        return dataclasses.replace(final, objects=others)

    def explore(self, *, only: str = "") -> Report:
        """
        Let the object become all that it can be. What the API refuses, is not counted.

        :param only: the name of the only walk to do.
        """
        began = time.monotonic()
        base = self._describe()
        baseline = self._run_once(base)
        baseline.raise_error()
        walks = [walk for walk in make_walks(base, list_changes(self._object.schema, base)) if only in ("", walk.name)]
        if not walks:
            raise ValueError(f"There is nothing to walk{f' called {only!r}' if only else ': no field has a schema'}.")
        budget = Budget(self._choices.get("runs"), self._choices.get("seconds"))
        with collecting_rarely():
            tried = [*watch((self._try(walk, baseline) for walk in budget.spend(walks)), len(walks), budget)]
        trials = [trial for trial in tried if trial is not None]
        return Report(trials=trials, omitted=len(walks) - len(tried), seconds=time.monotonic() - began)

    def _try(self, walk: Walk, baseline: FinalState) -> Trial | None:
        """Do the walk; give nothing if it is refused by the API."""
        expected = self._run_once(walk.expected)
        if _is_refused(expected):
            return None
        if len(walk.states) > 1:
            final = self.run(*walk.states, ending=walk.ending)
        else:  # it has nothing to be like, but must not fail
            final, expected = dataclasses.replace(expected, is_comparable=False), baseline
        if _is_refused(final):
            return None
        differences = final.compare(expected)
        if not differences:
            return Trial(name=walk.name, kind=walk.kind)
        return Trial(
            name=walk.name, kind=walk.kind, differences=differences,
            excerpt=make_excerpt(final.journal, baseline.journal),
            script=write_walk_script(self._describe, walk),
        )

    def _run_once(self, state: Manifest) -> FinalState:
        """Create the object in this state, or remember how that was."""
        key = json.dumps(state, sort_keys=True)
        if key not in self._known:
            self._known[key] = self.run(state)
        return self._known[key]


def _is_refused(final: FinalState) -> bool:
    return any(
        isinstance(problem.error, kopf_cluster.APIStatus) and problem.error.code in _REFUSALS
        for problem in final.problems
    )
