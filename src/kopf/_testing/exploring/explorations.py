"""
Explorations: one test is run without trouble, and then with all the trouble that can be, one by one.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from kopf._testing.exploring.budgets import Budget
from kopf._testing.exploring.final_states import FinalState
from kopf._testing.exploring.reports import Report, Trial, make_excerpt
from kopf._testing.exploring.scenes import CALM, ENDINGS, Scene, Test, Trouble, no_trouble
from kopf._testing.exploring.scripts import write_script
from kopf._testing.exploring.variants import TROUBLES, TroubleKind, Variant, make_variants
from kopf._testing.simulation_errors import SimulationError


class Source(NamedTuple):
    """Where the operator comes from."""

    paths: Sequence[str | pathlib.Path]
    options: Mapping[str, Any]
    """The options of :class:`Simulation`."""


class Choices(TypedDict, total=False):
    """What is explored, and how it is judged."""

    troubles: Collection[TroubleKind]
    """Which kinds of trouble are made; all by default."""
    runs: int | None
    """How many runs there may be; all that are possible by default."""
    seconds: float | None
    """How long it may take, in seconds of the real time; as long as it takes, by default."""
    ignore: Collection[str]
    """What is not compared: kinds (``pods``, ``deployments.apps``), and fields (``status.probed``) of all kinds."""
    observe: Callable[[], Mapping[str, Any]]
    """Tells what there is outside of the cluster, e.g. in a fake API: it must come out the same, too."""
    tracebacks: bool
    """Whether tracebacks in the logs are failures, if there are none without trouble; true by default."""


class Exploration:
    """
    One test with all the trouble that can be.

    :param test: the test: a coroutine function of a simulation, or a function of a :class:`SyncSimulation`.
    """

    def __init__(self, test: Test, source: Source, choices: Choices) -> None:
        unknown = set(choices.get("troubles", ())) - set(TROUBLES)
        if unknown:
            raise ValueError(f"There is no such trouble: {', '.join(sorted(unknown))}; it is one of {TROUBLES}.")
        self.test = test
        self._paths = source.paths
        self._options = {"slack": CALM, **source.options}
        self._choices = choices

    def run(
        self, trouble: Trouble = no_trouble, *, seed: int | None = None, ending: str = "", **judgement: bool
    ) -> FinalState:
        """
        Run the test once.

        :param trouble: makes the trouble in the simulation that has just begun.
        :param ending: ``"deletion"`` if all the test's objects are deleted in the end, to look for what is left;
            ``"deletion during downtime"`` if they are deleted while there is no operator.
        :param judgement: ``is_harmed`` if requests are refused or broken, so that errors of clients are natural;
            ``is_test_judged=False`` if the test does not have to pass with that.
        """
        scene = Scene(
            test=self.test, trouble=trouble, deletion=ENDINGS[ending], observe=self._choices.get("observe", dict),
            ignored=self._choices.get("ignore", ()), tracebacks=self._choices.get("tracebacks", True), **judgement,
        )
        options = self._options if seed is None else {**self._options, "seed": seed}
        return scene.run(*self._paths, **options)

    def explore(self, *, only: str = "", **choices: Any) -> Report:
        """
        Run the test without trouble, then with it.

        Raises the error of the test if it does not pass without trouble, or :class:`SimulationError` if it does not
        settle then.

        :param only: the name of the only variant to run.
        :param choices: other choices than those of the exploration.
        """
        if choices:
            return Exploration(
                self.test, Source(self._paths, self._options), {**self._choices, **choices}  # type: ignore[typeddict-item]
            ).explore(only=only)
        began = time.monotonic()
        baseline = self.run_baseline()
        variants = self._choose(baseline, only)
        budget = Budget(self._choices.get("runs"), self._choices.get("seconds"))
        trials = [self._try(variant, baseline) for variant in budget.spend(variants)]
        return Report(trials=trials, omitted=len(variants) - len(trials), seconds=time.monotonic() - began)

    def run_baseline(self) -> FinalState:
        """Run the test without trouble. Raises the same as :meth:`explore`."""
        baseline = self.run()
        if any(isinstance(problem.error, SimulationError) for problem in baseline.problems):
            self._options["slack"] = 0.0  # there are timers which never rest: it settles only as the test expects it
            baseline = self.run()
        if not baseline.is_comparable or any(problem.error is not None for problem in baseline.problems):
            baseline.raise_error()
        endless = [problem.text for problem in baseline.problems if problem.is_endless]
        if endless:
            raise SimulationError(f"The test does not settle even without trouble: {'; '.join(endless)}")
        return baseline

    def _choose(self, baseline: FinalState, only: str) -> list[Variant]:
        kinds = self._choices.get("troubles", TROUBLES)
        variants = [variant for variant in make_variants(baseline.story) if variant.kind in kinds]
        if not only:
            return variants
        if chosen := [variant for variant in variants if variant.name == only]:
            return chosen
        raise ValueError(f"There is no variant {only!r}. There are: {', '.join(variant.name for variant in variants)}.")

    def _try(self, variant: Variant, baseline: FinalState) -> Trial:
        judgement = {"is_harmed": variant.is_harmed, "is_test_judged": variant.is_test_judged}
        final = self.run(variant.make_trouble, seed=variant.seed, ending=variant.ending, **judgement)
        differences = final.compare(baseline)
        if not differences:
            return Trial(name=variant.name, kind=variant.kind)
        return Trial(
            name=variant.name, kind=variant.kind, differences=differences,
            excerpt=make_excerpt(final.journal, baseline.journal),
            script=write_script(self.test, variant, self._options.get("seed", 0)),
        )
