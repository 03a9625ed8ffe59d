"""The listener for attempts: what the handlers of all kinds do; the daemons and timers of the objects among them."""

from __future__ import annotations

from kopf._controller.observer import Observer
from kopf._handlers.causes import ActivityCause, Cause, ResourceCause
from kopf._handlers.handlers import DaemonHandler, Handler, IndexingHandler, SpawningHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._insight.console.grouped_errors import GroupedErrors
from kopf._insight.console.history import ERROR, INFO, WARNING, History, ObjectRecord
from kopf._insight.console.panels import BackgroundRuns
from kopf._insight.console.texts import WITHHELD, is_secret, show_error
from kopf._values.reasons import Activity


class AttemptListener(Observer):
    """Follows the attempts, told late. Their results are never looked at: those of logins are credentials."""

    def __init__(self, history: History, errors: GroupedErrors, background: BackgroundRuns) -> None:
        self._history = history
        self._errors = errors
        self._background = background
        self._records: dict[int, ObjectRecord] = {}
        """Those which are tried right now."""
        self.secret_indices: set[str] = set()
        """Those that are made of secrets."""

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: Attempt) -> None:
        if isinstance(handler, IndexingHandler):
            if isinstance(cause, ResourceCause) and is_secret(cause.resource):
                self.secret_indices.add(handler.id)
            return
        record = self._find(cause)
        if record is None:
            return
        self._records[number] = record
        if isinstance(handler, SpawningHandler):
            self._background.begin(record, handler, self._history.backlog.now)
        if isinstance(handler, DaemonHandler):
            self._history.add(record, "attempt", f"the daemon {handler.id} is started")
        elif not isinstance(handler, SpawningHandler):
            record.calling = handler.id
            self._history.mark(record)

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        took, record = self._history.backlog.clock() - started, self._records.pop(number, None)
        error = None if outcome is None else outcome.exception
        if record is None and (record := self._find(cause)) is None:
            return
        if isinstance(handler, SpawningHandler):
            self._background.end(record, handler, outcome, took)
        else:
            record.calling = ""
        if isinstance(error, Exception):
            self._errors.add(handler.id, error, record)
        if isinstance(handler, IndexingHandler) or (record is self._history.operator and _is_of_probe(cause)):
            return
        text, level = _describe(handler, outcome, took, is_withheld=record.kind.is_secret)
        self._history.add(record, "attempt", text, level=level)
        if level != INFO:
            record.problem = text

    def _find(self, cause: Cause) -> ObjectRecord | None:
        """Find which object it is about, or that it is about the operator itself."""
        if isinstance(cause, ResourceCause):
            return self._history.find(cause.resource, cause.body.object.head.key)
        return self._history.operator if isinstance(cause, ActivityCause) else None


def _is_of_probe(cause: Cause) -> bool:
    return isinstance(cause, ActivityCause) and cause.activity is Activity.PROBE


def _describe(handler: Handler, outcome: Outcome | None, took: float, *, is_withheld: bool) -> tuple[str, int]:
    name, duration = _name(handler), f"{took * 1000:.1f} ms" if took < 1 else f"{took:.1f} s"
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
