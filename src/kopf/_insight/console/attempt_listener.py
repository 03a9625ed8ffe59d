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
from kopf._values.resources import Resource


class AttemptListener:
    """Follows the attempts. Their results are never looked at: those of logins are credentials."""

    def __init__(self, bus: Bus, history: History, errors: GroupedErrors, background: BackgroundRuns) -> None:
        self._history = history
        self._note = history.backlog.note
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
        if not isinstance(handler, IndexingHandler):
            self._note(self._take_begun, handler, _identify(fact))
        elif isinstance(fact.cause, ResourceCause) and is_secret(fact.cause.resource):
            self.secret_indices.add(handler.id)

    def _take_begun(self, handler: Handler, key: _Key) -> None:
        record = self._find(key)
        if record is None:
            return
        if isinstance(handler, SpawningHandler):
            self._background.begin(record, handler, self._history.backlog.now)
        if isinstance(handler, DaemonHandler):
            self._history.add(record, "attempt", f"the daemon {handler.id} is started")
        elif record.state == "handling":
            self._history.set_state(record, "handling", note=f"calling {handler.id}", next_at=record.next_at)

    def _end(self, fact: AttemptEnded) -> None:
        begun, outcome, now = fact.begun, fact.outcome, time.monotonic()
        took = now - self._begun.pop(id(begun), now)
        is_failed = outcome is not None and (outcome.exception is not None or outcome.ignored is not None)
        if not is_failed and (isinstance(begun.handler, IndexingHandler) or _is_of_probe(begun)):
            return
        if is_failed or isinstance(begun.handler, SpawningHandler):
            self._note(self._take_ended, begun.handler, _identify(begun), outcome, took)
            self._history.backlog.settle()  # errors hold whatever has led to them
        elif outcome is None:
            self._note(self._take_ended, begun.handler, _identify(begun), None, took)
        else:  # nothing of the results is kept
            self._note(self._take_success, begun.handler, _identify(begun), took)

    def _take_success(self, handler: Handler, key: _Key, took: float) -> None:
        if (record := self._find(key)) is not None:
            text = f"{_name(handler)} has succeeded in {_show_duration(took)}"
            self._history.add(record, "attempt", text)
            self._return_to_handling(record)

    def _take_ended(self, handler: Handler, key: _Key, outcome: Outcome | None, took: float) -> None:
        record = self._find(key)
        if record is None:
            return
        error = None if outcome is None else outcome.exception
        if isinstance(handler, SpawningHandler):
            self._background.end(record, handler, outcome, took)
        if error is not None and isinstance(error, Exception):
            self._errors.add(handler.id, error, record)
        elif isinstance(handler, IndexingHandler) or key[2]:
            return
        text, level = _describe(handler, outcome, took, is_withheld=record.kind.is_secret)
        self._history.add(record, "attempt", text, level=level)
        if level != INFO:
            record.problem = text
        self._return_to_handling(record)

    def _return_to_handling(self, record: ObjectRecord) -> None:
        if record.state == "handling":
            self._history.set_state(record, "handling", note=record.problem, next_at=record.next_at)

    def _find(self, key: _Key) -> ObjectRecord | None:
        resource, uid, _ = key
        if resource is None:
            return None if uid is None else self._history.operator
        return self._history.find(resource, uid or "")


_Key = tuple[Resource | None, str | None, bool]
"""The resource and the object; or no resource and an empty text for the operator; and if it is of a probe."""


def _identify(fact: AttemptBegun) -> _Key:
    cause = fact.cause
    if isinstance(cause, ActivityCause):
        return None, "", _is_of_probe(fact)
    if not isinstance(cause, ResourceCause):
        return None, None, False
    return cause.resource, cause.body.object.head.key, False


def _is_of_probe(fact: AttemptBegun) -> bool:
    return isinstance(fact.cause, ActivityCause) and fact.cause.activity is Activity.PROBE


def _describe(handler: Handler, outcome: Outcome | None, took: float, *, is_withheld: bool) -> tuple[str, int]:
    name, duration = _name(handler), _show_duration(took)
    if outcome is None:
        return f"{name} is cancelled after {duration}", WARNING
    error = outcome.exception or outcome.ignored
    if error is None:
        return f"{name} has succeeded in {duration}", INFO
    text = type(error).__name__ if is_withheld else show_error(error)
    if outcome.exception is None:
        return f"{name} has failed in {duration}, which is ignored: {text}", WARNING
    if is_withheld:
        text = f"{text}: {WITHHELD}"
    if outcome.final:
        return f"{name} has failed for good in {duration}: {text}", ERROR
    return f"{name} has failed in {duration}, again in {outcome.delay or 0:g} s: {text}", WARNING


def _name(handler: Handler) -> str:
    if isinstance(handler, SpawningHandler):
        return f"the {'daemon' if isinstance(handler, DaemonHandler) else 'timer'} {handler.id}"
    return str(handler.id)


def _show_duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
