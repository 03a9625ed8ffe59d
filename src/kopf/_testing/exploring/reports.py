"""
Reports: what was tried, what has come out the same, and what has not; with the way to repeat it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

_SHOWN = 5
"""How many failures are shown in full."""
_BEFORE, _AFTER = 3, 15
"""How many entries of the journal are shown, before and after it has gone another way."""
_WIDTH = 150
"""How much of each of them is shown, in characters."""
_DIFFERENCES = 10
"""How many differences are shown for each failure."""


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
    return "\n".join(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in excerpt)


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
