"""
The budget of an exploration, and its progress for people who wait: how far it has come, how long it will take.
"""

from __future__ import annotations

import contextvars
import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from kopf._testing.exploring.reports import Report, Trial
from kopf.cli.memory import collecting_rarely

T = TypeVar("T")
Tried = TypeVar("Tried", bound=Trial | None)
Show = Callable[[str], None]
"""Shows a line in place of the previous one; an empty line in the end."""

_PAUSE = 0.2
"""How often it is shown, in seconds."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How many runs there may be, and how many seconds of the real time they may take together; none for no limit."""

    runs: int | None = None
    seconds: float | None = None

    def spend(self, items: Iterable[T]) -> Iterator[T]:
        """Give the items while the budget lasts; at least one."""
        began = time.monotonic()
        for count, item in enumerate(items):
            if self.runs is not None and count >= self.runs:
                return
            if count and self.seconds is not None and time.monotonic() - began >= self.seconds:
                return
            yield item


def try_all(
    items: Sequence[T], attempt: Callable[[Iterator[T]], Iterator[Trial | None]], budget: Budget, began: float
) -> Report:
    """Try as many items as the budget permits, and show the progress. Items without a result do not count."""
    with collecting_rarely():
        tried = [*watch(attempt(budget.spend(items)), len(items), budget)]
    trials = [trial for trial in tried if trial is not None]
    return Report(trials=trials, omitted=len(items) - len(tried), seconds=time.monotonic() - began)


def _write(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()


display: contextvars.ContextVar[Show | None] = contextvars.ContextVar("display", default=None)
"""Who shows it, if not the terminal itself: pytest, which hides from it what tests write."""


def watch(trials: Iterator[Tried], total: int, budget: Budget) -> Iterator[Tried]:
    """Pass the trials through, and show how many of so many are done; only at a terminal."""
    show = display.get() or (_write if sys.stderr.isatty() else None)
    if show is None:
        yield from trials
        return
    total = total if budget.runs is None else min(total, budget.runs)
    began = shown = time.monotonic()
    failed = 0
    try:
        for done, trial in enumerate(trials, 1):
            failed += trial is not None and not trial.has_converged
            yield trial
            now = time.monotonic()
            if now - shown >= _PAUSE:
                shown = now
                show(describe(done, total, failed, now - began, budget.seconds))
    finally:
        show("")


def describe(done: int, total: int, failed: int, elapsed: float, limit: float | None = None) -> str:
    """Tell it in one line: ``37/61, 2 failed, ~12 s left``."""
    left = elapsed / done * (total - done)
    if limit is not None:
        left = min(left, max(0.0, limit - elapsed))
    return f"{done}/{total}, {failed} failed, ~{left:.0f} s left"
