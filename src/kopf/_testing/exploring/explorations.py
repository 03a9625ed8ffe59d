"""
Explorations: a test runs once without trouble, and then once with each possible trouble.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypedDict

from kopf._testing.exploring.exploration_progress import Budget, try_all
from kopf._testing.exploring.explored_runs import CALM, ENDINGS, ExploredRun, Trouble, no_trouble, only_listen
from kopf._testing.exploring.final_states import FinalState
from kopf._testing.exploring.reports import Report, Trial, describe_race, make_excerpt, write_script
from kopf._testing.exploring.subjects import Source, Subject
from kopf._testing.exploring.variants import TROUBLES, TroubleKind, Variant, make_variants
from kopf._virtual_time.patience import SimulationError

_LEFTOVERS = (
    "The test runs many times. So it must reset all state outside of the cluster at its beginning: of the test, of its "
    "fixtures, and of the operator."
)


class Choices(TypedDict, total=False):
    """The options of an exploration: its scope, and its criteria."""

    troubles: Collection[TroubleKind]
    """The kinds of trouble; all by default."""
    runs: int | None
    """The maximum number of runs; unlimited by default."""
    seconds: float | None
    """The maximum duration in seconds of the real time; unlimited by default."""
    ignore: Collection[str]
    """The parts to leave out: kinds (``pods``, ``deployments.apps``), or fields (``status.probed``) of all kinds."""
    observe: Callable[[], Mapping[str, Any]]
    """Returns the state outside of the cluster, e.g. in a fake API: it must be the same in the end, too."""
    tracebacks: bool
    """Whether tracebacks in the logs are failures, unless they also happen without trouble; true by default."""


class Exploration:
    """
    A test to be run with each possible trouble.

    :param subject: the test: a coroutine function of a simulation, or a function of a :class:`SyncSimulation`.
    """

    def __init__(self, subject: Subject, source: Source, choices: Choices) -> None:
        for name in ("troubles", "ignore"):
            if isinstance(choices.get(name), str):
                raise TypeError(f"The option {name}= needs a list, even for one item: {name}=[{choices.get(name)!r}].")
        unknown = set(choices.get("troubles", ())) - set(TROUBLES)
        if unknown:
            raise ValueError(f"Unknown troubles: {', '.join(sorted(unknown))}; the known ones are: {TROUBLES}.")
        self._subject = subject
        self._source = source
        self._choices = choices
        self._slack = CALM

    def given(self, /, **arguments: Any) -> Exploration:
        """Return the exploration for these arguments of the test (fixtures, parameters) besides the simulation."""
        return Exploration(Subject(self._subject.function, arguments), self._source, self._choices)

    def run(
        self, trouble: Trouble = no_trouble, *, seed: int | None = None, ending: str = "", **judgement: bool
    ) -> FinalState:
        """
        Run the test once.

        :param trouble: called with the new simulation to make the trouble.
        :param ending: ``"deletion"`` to delete all the test's objects in the end and look for leftovers;
            ``"deletion during downtime"`` to delete them while the operator is stopped.
        :param judgement: ``is_harmed=True`` if requests are refused or broken, so that clients' errors are expected;
            ``is_test_judged=False`` if the test may fail with this trouble.
        """
        explored = ExploredRun(
            test=self._subject.call,
            is_async=self._subject.is_async,
            trouble=trouble,
            deletion=ENDINGS[ending],
            observe=self._choices.get("observe", dict),
            ignored=self._choices.get("ignore", ()),
            tracebacks=self._choices.get("tracebacks", True),
            **judgement,
        )
        options = {"slack": self._slack, **self._source.options}
        return explored.run(*self._source.paths, **(options if seed is None else {**options, "seed": seed}))

    def explore(self, *, only: str = "", **choices: Any) -> Report:
        """
        Run the test without trouble, then with each trouble.

        Raises the error of the test if it fails without trouble, or :class:`SimulationError` if it does not settle
        then, or if its results differ when it is run again.

        :param only: the name of the only variant to run.
        :param choices: options that override the options of the exploration.
        """
        if choices:
            chosen: Choices = {**self._choices, **choices}  # type: ignore[typeddict-item]
            return Exploration(self._subject, self._source, chosen).explore(only=only)
        began = time.monotonic()
        baseline = self.run_baseline()
        variants = self._choose(baseline, only)
        budget = Budget(self._choices.get("runs"), self._choices.get("seconds"))
        return try_all(variants, functools.partial(self._try_all, baseline), budget, began)

    def run_baseline(self) -> FinalState:
        """Run the test without trouble. Raises the same as :meth:`explore`."""
        baseline = self.run(only_listen)
        if any(isinstance(problem.error, SimulationError) for problem in baseline.problems):
            self._slack = 0.0  # there are timers that never rest: it settles only when the test expects it
            baseline = self.run(only_listen)
        if not baseline.is_comparable or any(problem.error is not None for problem in baseline.problems):
            baseline.raise_error()
        endless = [problem.text for problem in baseline.problems if problem.is_endless]
        if endless:
            raise SimulationError(f"The test does not settle even without trouble: {'; '.join(endless)}")
        return baseline

    def _choose(self, baseline: FinalState, only: str) -> list[Variant]:
        kinds = self._choices.get("troubles", TROUBLES)
        variants = [variant for variant in make_variants(baseline.story) if variant.kind in kinds]
        if not variants:
            raise SimulationError(
                f"There is nothing to explore: in the test, the operator does nothing that {', '.join(kinds)} could "
                f"disturb. Does it have handlers for the objects of the test?"
            )
        if not only:
            return variants
        if chosen := [variant for variant in variants if variant.name == only]:
            return chosen
        raise ValueError(f"There is no variant {only!r}. There are: {', '.join(variant.name for variant in variants)}.")

    def _try_all(self, baseline: FinalState, variants: Iterable[Variant]) -> Iterator[Trial]:
        has_failed = False
        for variant in variants:
            trial = self._try(variant, baseline)
            if not trial.has_converged and not has_failed:
                has_failed = True
                self._check_repeatability(baseline, variant)
            yield trial

    def _check_repeatability(self, baseline: FinalState, variant: Variant) -> None:
        """Check that the trouble made the difference: without it, the results must be the same again."""
        again = self.run()
        differences = again.compare(baseline)
        if differences:
            told = "\n".join(f"  {line}" for line in differences)
            overlaps = sorted({*baseline.overlaps, *again.overlaps})
            raise SimulationError(
                f"The test cannot be explored. It ran again without any trouble, after the run {variant.name!r}, "
                f"and its results differ:\n{told}\n{describe_race(overlaps) if overlaps else _LEFTOVERS}"
            )

    def _try(self, variant: Variant, baseline: FinalState) -> Trial:
        judgement = {"is_harmed": variant.is_harmed, "is_test_judged": variant.is_test_judged}
        final = self.run(variant.make_trouble, seed=variant.seed, ending=variant.ending, **judgement)
        differences = final.compare(baseline)
        if not differences:
            return Trial(name=variant.name, kind=variant.kind)
        return Trial(
            name=variant.name,
            kind=variant.kind,
            differences=differences,
            overlaps=final.overlaps,
            excerpt=make_excerpt(final.journal, baseline.journal),
            script=write_script(self._subject, variant, self._source.options.get("seed", 0)),
        )
