"""The listener for attempts: what the handlers of all kinds do; the daemons and timers of the objects among them."""

from __future__ import annotations

import time

from kopf._facts.bus import Bus
from kopf._handlers.attempt_facts import AttemptBegun, AttemptEnded
from kopf._handlers.causes import ActivityCause, ResourceCause
from kopf._handlers.handlers import DaemonHandler, Handler, IndexingHandler, SpawningHandler
from kopf._handlers.outcomes import Outcome
from kopf._insight.console.background_runs import BackgroundRuns
from kopf._insight.console.grouped_errors import GroupedErrors
from kopf._insight.console.history import ERROR, INFO, WARNING, History
from kopf._insight.console.object_records import ObjectRecord
from kopf._insight.console.texts import WITHHELD, is_secret, show_error
from kopf._values.reasons import Activity


class AttemptListener:
    """Follows the attempts. Their results are never looked at: those of logins are credentials."""

    def __init__(self, bus: Bus, history: History, errors: GroupedErrors, background: BackgroundRuns) -> None:
        self._history = history
        self._errors = errors
        self._background = background
        self._begun: dict[int, float] = {}
        self.secret_indices: set[str] = set()
        """Those that are made of secrets."""
        bus.subscribe(AttemptBegun, self._begin)
        bus.subscribe(AttemptEnded, self._end)

    def _begin(self, fact: AttemptBegun) -> None:
        self._begun[id(fact)] = time.monotonic()
        handler = fact.handler
        if isinstance(handler, IndexingHandler):
            if isinstance(fact.cause, ResourceCause) and is_secret(fact.cause.resource):
                self.secret_indices.add(handler.id)
            return
        record = self._find(fact)
        if record is None:
            return
        if isinstance(handler, SpawningHandler):
            self._background.begin(record, handler)
        if isinstance(handler, DaemonHandler):
            self._history.add(record, "attempt", f"the daemon {handler.id} is started")
        elif record.state == "handling":
            self._history.set_state(record, "handling", note=f"calling {handler.id}", next_at=record.next_at)

    def _end(self, fact: AttemptEnded) -> None:
        begun, outcome = fact.begun, fact.outcome
        took = time.monotonic() - self._begun.pop(id(begun), time.monotonic())
        handler = begun.handler
        record = self._find(begun)
        if record is None:
            return
        error = None if outcome is None else outcome.exception
        if isinstance(handler, SpawningHandler):
            self._background.end(record, handler, outcome, took)
        if error is not None and isinstance(error, Exception):
            self._errors.add(handler.id, error, record)
        elif isinstance(handler, IndexingHandler) or _is_of_probe(begun):
            return
        text, level = _describe(handler, outcome, took, is_withheld=record.kind.is_secret)
        self._history.add(record, "attempt", text, level=level)
        if level != INFO:
            record.problem = text
        if record.state == "handling":
            self._history.set_state(record, "handling", note=record.problem, next_at=record.next_at)

    def _find(self, fact: AttemptBegun) -> ObjectRecord | None:
        cause = fact.cause
        if isinstance(cause, ActivityCause):
            return self._history.operator
        if not isinstance(cause, ResourceCause):
            return None
        return self._history.find(cause.resource, cause.body.object.head.key)


def _is_of_probe(fact: AttemptBegun) -> bool:
    return isinstance(fact.cause, ActivityCause) and fact.cause.activity is Activity.PROBE


def _describe(handler: Handler, outcome: Outcome | None, took: float, *, is_withheld: bool) -> tuple[str, int]:
    name = str(handler.id)
    if isinstance(handler, SpawningHandler):
        name = f"the {'daemon' if isinstance(handler, DaemonHandler) else 'timer'} {name}"
    time_taken = f"{took * 1000:.1f} ms" if took < 1 else f"{took:.1f} s"
    if outcome is None:
        return f"{name} is cancelled after {time_taken}", WARNING
    if outcome.exception is None:
        if outcome.ignored is not None:
            error = type(outcome.ignored).__name__ if is_withheld else show_error(outcome.ignored)
            return f"{name} has failed in {time_taken}, which is ignored: {error}", WARNING
        return f"{name} has succeeded in {time_taken}", INFO
    error = f"{type(outcome.exception).__name__}: {WITHHELD}" if is_withheld else show_error(outcome.exception)
    if outcome.final:
        return f"{name} has failed for good in {time_taken}: {error}", ERROR
    return f"{name} has failed in {time_taken}, again in {outcome.delay or 0:g} s: {error}", WARNING
