"""
Reports: what was tried, what has come out the same, and what has not; with a script that repeats it.
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
"""How many failures are shown in full."""
_BEFORE, _AFTER = 3, 15
"""How many entries of the journal are shown, before and after it has gone another way."""
_WIDTH = 150
"""How much of each of them is shown, in characters."""
_DIFFERENCES = 10
"""How many differences are shown for each failure."""

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
"""What the code of variants can use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One run, and what was wrong with it."""

    name: str
    kind: str
    """Of which kind the trouble was."""
    differences: Sequence[str] = ()
    """What was wrong, or has come out in another way than without trouble; nothing if it has converged."""
    overlaps: Sequence[str] = ()
    """Which handlers have run at once in threads, by pairs: in which order they did what, was up to chance."""
    excerpt: str = ""
    """What has happened there, from where it has gone another way than without trouble."""
    script: str = ""
    """How to repeat it: a text in Python."""

    @property
    def has_converged(self) -> bool:
        """Whether nothing was wrong with it."""
        return not self.differences

    def __str__(self) -> str:
        shown = "\n".join(f"  {line}" for line in self.differences[:_DIFFERENCES])
        omitted = len(self.differences) - _DIFFERENCES
        more = f"\n  ... and {omitted} more" if omitted > 0 else ""
        race = f"\n{_indent(describe_race(self.overlaps))}" if self.overlaps else ""
        return (
            f"{self.name}:\n{shown}{more}{race}\n\n Where it goes another way:\n{_indent(self.excerpt)}\n\n"
            f" To repeat it:\n{_indent(self.script)}\n"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What an exploration has come to."""

    trials: Sequence[Trial]
    """What was tried, in this order."""
    omitted: int = 0
    """How many more would have been tried with a larger budget."""
    seconds: float = 0.0
    """How long it has taken, in seconds of the real time."""

    @property
    def failures(self) -> list[Trial]:
        """The trials that have not converged."""
        return [trial for trial in self.trials if not trial.has_converged]

    @property
    def table(self) -> str:
        """A line for each kind of trouble: how many were tried, and how many of them have converged."""
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
    """Tell of a race: of handlers that went on at once, and of what comes of it if they change the same."""
    pairs = "\n".join(f"  {pair}" for pair in overlaps[:_DIFFERENCES])
    return (
        f"These handlers have run at once in threads, in no certain order:\n{pairs}\n"
        f"If both of them read something and write it back, the one overwrites what the other has written meanwhile: a "
        f"lost update. Write with the resourceVersion that was read, and try again on 409; or change it in one request."
    )


def make_excerpt(journal: str, expected: str) -> str:
    """Cut out of the journal what is around the moment when it begins to differ from the expected one."""
    lines, others = journal.splitlines(), expected.splitlines()
    begin = next((i for i, (line, other) in enumerate(zip(lines, others, strict=False)) if line != other), len(others))
    excerpt = lines[max(0, begin - _BEFORE) : begin + _AFTER]
    return "\n".join(shorten(line, _WIDTH) for line in excerpt)


def write_script(subject: Subject, variant: Variant, seed: int) -> str:
    """
    Write the script that tells the story without trouble and with it, and compares how they have ended.

    If the test is inside of something, or is given what has no form in Python, it is only told how to run it.
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
    """Write the script that brings an object from one state to another, and compares that with what it must be."""
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
    """Tell how pytest calls the test: it says so itself while the test runs."""
    current, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")
    return current or subject.path


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
