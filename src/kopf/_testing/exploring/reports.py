"""
Reports of explorations: all runs, their differences from the run without trouble, and scripts to repeat them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from kopf._testing.exploring.subjects import Subject, find_file
from kopf._testing.exploring.variants import Variant
from kopf._testing.exploring.walks import Walk
from kopf._virtual_time.journal import shorten

_SHOWN = 5
"""The number of failures that are shown in full."""
_BEFORE, _AFTER = 3, 15
"""The number of shown entries of the journal, before and after the first difference."""
_WIDTH = 150
"""The shown length of each entry, in characters."""
_DIFFERENCES = 10
"""The number of shown differences of each failure."""

# The shortest programs in Python that repeat one failure.
_TEMPLATE = """\
# {name}
import runpy
{imports}
exploration = runpy.run_path({path!r})[{function!r}].exploration{given}

def trouble(simulation):
    {code}

calm = exploration.run_baseline()
troubled = exploration.run(trouble, seed={seed}{judgement})
print(troubled.journal)
differences = troubled.compare(calm)
assert not differences, "\\n".join(differences)
"""
_WALK_TEMPLATE = """\
# {name}
import runpy

walk = runpy.run_path({path!r})[{function!r}].walk

expected = walk.run({expected!r})
walked = walk.run(
{states}{ending})
print(walked.journal)
differences = walked.compare(expected)
assert not differences, "\\n".join(differences)
"""
_HINT = """\
# {name}
# A script cannot call the test as pytest does. To repeat this run alone, name it in the decorator, and run the test:
#   @explore(..., only={name!r})
#   pytest {test!r}
"""
_IMPORTABLE = ("FaultRule", "delete_created")
"""The names that the code of variants can use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One run with trouble, and its problems."""

    name: str
    """The trouble in one line, e.g. ``a crash after request 5``."""
    kind: str
    """The kind of trouble."""
    differences: Sequence[str] = ()
    """The problems, and the differences from the run without trouble; empty if the run has converged."""
    overlaps: Sequence[str] = ()
    """The pairs of handlers that ran at once in threads: their order was random."""
    excerpt: str = ""
    """The journal of the run, from its first difference from the run without trouble."""
    script: str = ""
    """A Python script that repeats the run."""

    @property
    def has_converged(self) -> bool:
        """Whether the run has no problems and no differences."""
        return not self.differences

    def __str__(self) -> str:
        shown = "\n".join(f"  {line}" for line in self.differences[:_DIFFERENCES])
        omitted = len(self.differences) - _DIFFERENCES
        more = f"\n  ... and {omitted} more" if omitted > 0 else ""
        race = f"\n{_indent(describe_race(self.overlaps))}" if self.overlaps else ""
        return (
            f"{self.name}:\n{shown}{more}{race}\n\n The first difference:\n{_indent(self.excerpt)}\n\n"
            f" To repeat it:\n{_indent(self.script)}\n"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The results of an exploration."""

    trials: Sequence[Trial]
    """The runs, in order."""
    omitted: int = 0
    """The number of further runs that did not fit into the budget."""
    seconds: float = 0.0
    """The duration, in seconds of the real time."""

    @property
    def failures(self) -> list[Trial]:
        """The runs that have not converged."""
        return [trial for trial in self.trials if not trial.has_converged]

    @property
    def table(self) -> str:
        """A line for each kind of trouble: the numbers of all runs, and of the converged ones."""
        kinds = list(dict.fromkeys(trial.kind for trial in self.trials))
        rows = [("trouble", "tried", "converged", "failed")]
        for kind in kinds:
            trials = [trial for trial in self.trials if trial.kind == kind]
            good = sum(trial.has_converged for trial in trials)
            rows.append((kind, str(len(trials)), str(good), str(len(trials) - good)))
        total, good = len(self.trials), len(self.trials) - len(self.failures)
        rows.append(("all", str(total), str(good), str(total - good)))
        return "\n".join(f"{row[0]:16}{row[1]:>8}{row[2]:>12}{row[3]:>9}" for row in rows)

    def check(self) -> None:
        """Raise :class:`AssertionError` with the table and the failures if there are any."""
        if self.failures:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        failures = self.failures
        shown = "\n".join(map(str, failures[:_SHOWN]))
        rest = "".join(f"\n{trial.name}: {trial.differences[0]}" for trial in failures[_SHOWN:])
        omitted = f"\n{self.omitted} more were not tried: the budget is spent." if self.omitted else ""
        names = "; ".join(trial.name for trial in failures[:_SHOWN]) + ("; ..." if len(failures) > _SHOWN else "")
        verdict = f"{len(failures)} of {len(self.trials)} did not converge: {names}" if names else "All has converged."
        return f"{verdict}\n\n{self.table}{omitted}\n" + (f"\n{shown}{rest}" if failures else "")


def describe_race(overlaps: Sequence[str]) -> str:
    """Describe a race of handlers that ran at once, and its consequences."""
    pairs = "\n".join(f"  {pair}" for pair in overlaps[:_DIFFERENCES])
    return (
        f"These handlers ran at once in threads, in no certain order:\n{pairs}\n"
        f"If both read a value and write it back, one of them overwrites the change of the other: a lost update. "
        f"Write with the resourceVersion that was read, and try again on 409; or change the value in one request."
    )


def make_excerpt(journal: str, expected: str) -> str:
    """Cut the part of the journal out that is around its first difference from the expected one."""
    lines, others = journal.splitlines(), expected.splitlines()
    begin = next((i for i, (line, other) in enumerate(zip(lines, others, strict=False)) if line != other), len(others))
    excerpt = lines[max(0, begin - _BEFORE) : begin + _AFTER]
    return "\n".join(shorten(line, _WIDTH) for line in excerpt)


def write_script(subject: Subject, variant: Variant, seed: int) -> str:
    """
    Write a script that runs the test without and with trouble, and compares the results.

    For nested tests, or for arguments without a form in Python, write only instructions to run the test.
    """
    if not subject.is_importable:
        return _HINT.format(name=variant.name, test=_identify(subject))
    imported = [name for name in _IMPORTABLE if name in variant.code]
    judgement = "".join(
        [
            f", ending={variant.ending!r}" if variant.ending else "",
            ", is_harmed=True" if variant.is_harmed else "",
            ", is_test_judged=False" if not variant.is_test_judged else "",
        ]
    )
    return _TEMPLATE.format(
        name=variant.name,
        imports=f"from kopf.testing import {', '.join(imported)}\n" if imported else "",
        path=subject.path,
        function=subject.function.__qualname__,
        given=_write_arguments(subject),
        code=variant.code or "pass",
        seed=seed if variant.seed is None else variant.seed,
        judgement=judgement,
    )


def write_walk_script(describe: Any, walk: Walk) -> str:
    """Write a script that changes an object from state to state, and compares the result with the expected one."""
    return _WALK_TEMPLATE.format(
        name=walk.name,
        path=find_file(describe),
        function=describe.__qualname__,
        expected=walk.expected,
        states="".join(f"    {state!r},\n" for state in walk.states),
        ending=f"    ending={walk.ending!r},\n" if walk.ending else "",
    )


def _write_arguments(subject: Subject) -> str:
    written = ", ".join(f"{name}={value!r}" for name, value in subject.arguments.items())
    return f".given({written})" if written else ""


def _identify(subject: Subject) -> str:
    """Return the name by which pytest calls the running test."""
    current, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")
    return current or subject.path


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
