"""The daemons and timers of the objects: which of them run, how the latest run has ended, when the next one begins."""

from __future__ import annotations

import collections

from kopf._handlers.handlers import DaemonHandler, SpawningHandler, TimerHandler
from kopf._handlers.outcomes import Outcome
from kopf._insight.console.object_records import ObjectRecord
from kopf._insight.console.texts import cut, show_error

MAX_RUNS = 20_000
"""How many of them are remembered."""
MAX_SHOWN = 500


class _Run:
    __slots__ = ("at", "count", "error", "name", "next_at", "sort", "state")

    def __init__(self, record: ObjectRecord, handler: SpawningHandler) -> None:
        self.name = f"{record.namespace}/{record.name}" if record.namespace else record.name
        self.sort = "daemon" if isinstance(handler, DaemonHandler) else "timer"
        self.state = "running"
        self.at = 0.0
        """When the latest run has begun."""
        self.next_at = 0.0
        self.count = 0
        self.error = ""


class BackgroundRuns:
    """All of them, the latest ones last."""

    def __init__(self) -> None:
        self._runs: collections.OrderedDict[tuple[str, int], _Run] = collections.OrderedDict()

    def begin(self, record: ObjectRecord, handler: SpawningHandler, at: float) -> None:
        """It runs since that time."""
        run = self._runs.get((handler.id, record.id))
        if run is None:
            run = self._runs[handler.id, record.id] = _Run(record, handler)
            if len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
        run.state, run.at, run.next_at = "running", at, 0.0
        run.count += 1
        self._runs.move_to_end((handler.id, record.id))

    def end(self, record: ObjectRecord, handler: SpawningHandler, outcome: Outcome | None, took: float) -> None:
        """It has ended for now, or for good."""
        run = self._runs.get((handler.id, record.id))
        if run is None:
            return
        if outcome is None or record.state == "gone":
            del self._runs[handler.id, record.id]
            return
        run.error = ""
        if outcome.exception is not None:
            is_secret = record.kind.is_secret
            run.error = type(outcome.exception).__name__ if is_secret else cut(show_error(outcome.exception), 200)
        if not outcome.final:
            run.state, run.next_at = "retrying", run.at + took + (outcome.delay or 0)
        elif run.error:
            run.state = "failed"
        elif isinstance(handler, TimerHandler) and handler.interval is not None:
            run.state, run.next_at = "waiting", _plan_next(handler, run, took)
        elif isinstance(handler, TimerHandler) and handler.idle is not None:
            run.state = "waiting"  # for a change of the object
        else:
            run.state = "done"

    def describe(self) -> dict[str, object]:
        """As it goes to the page: how many there are, and the latest ones."""
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        runs = [*self._runs.items()]
        for (handler, _), run in runs:
            counts[handler, run.sort, run.state] += 1
        return {
            "counts": [[*key, count] for key, count in sorted(counts.items())],
            "runs": [
                [handler, id, run.name, run.state, int(run.at * 1000), int(run.next_at * 1000), run.count, run.error]
                for (handler, id), run in runs[: -MAX_SHOWN - 1 : -1]
            ],
        }


def _plan_next(handler: TimerHandler, run: _Run, took: float) -> float:
    interval = handler.interval or 0.0
    return (run.at if handler.sharp and took < interval else run.at + took) + interval
