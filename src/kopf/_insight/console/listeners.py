"""
The listeners: they write events, passes, attempts of handlers, and logs to the history.

They are called late, by the backlog. Only values that users can change until then are serialised at once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from kopf._client.client_observer import is_same
from kopf._controller.changes.decision import Plan, Saving
from kopf._controller.changes.detection import Detection
from kopf._controller.observer import Observer
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import ActivityCause, Cause, ResourceCause
from kopf._handlers.handlers import DaemonHandler, Handler, IndexingHandler, SpawningHandler
from kopf._insight.backlog import Backlog
from kopf._insight.console.history import ERROR, INFO, WARNING, History, ObjectRecord
from kopf._insight.console.panels import BackgroundRuns, GroupedErrors
from kopf._insight.console.patch_details import keep, restore_diff, restore_patch
from kopf._insight.console.texts import WITHHELD, cut, show_error
from kopf._insight.console.traffic import Traffic
from kopf._insight.explaining.redacted_texts import is_secret
from kopf._insight.inspecting.decision_journal import word_plan
from kopf._logging.loggers import objects_logger
from kopf._values.objects import KubeObject
from kopf._values.reasons import Activity
from kopf._values.references import ObjectReference
from kopf._values.resources import Resource

_MAX_FAILURES = 10
_MAX_VERSION = 40


class ObjectListener(Observer):
    """Follows the objects from their events to their patches; called late, by the backlog."""

    def __init__(self, history: History, errors: GroupedErrors, traffic: Traffic) -> None:
        self._history = history
        self._errors = errors
        self._traffic = traffic
        self._plans: dict[int, Plan] = {}

    def object_seen(self, resource: Resource, key: str, type: str | None, obj: KubeObject) -> None:
        history, head = self._history, obj.head
        version, now = head.resourceVersion, history.backlog.now
        record = history.obtain(resource, key, head.namespace, head.name)
        text = f"{type or 'listed'}, version {version[:_MAX_VERSION]}"
        lag = None
        if record.own_write is not None and record.own_write[0] == version:
            lag = max(0.0, now - record.own_write[1])
            record.own_write = None
            text += f": own write, back after {lag * 1000:.0f} ms"
        else:
            record.seen = now
            if head.deletionTimestamp is not None and type != "DELETED":
                text += ", being deleted"
        self._traffic.note_event(resource, lag, now)
        history.add(record, "seen", text)
        if type == "DELETED":
            history.set_state(record, "gone")
        elif record.rest == "gone":  # it is selected again
            history.set_state(record, "idle")

    def take_decided(self, resource: Resource, key: str, plan: Plan, kept: bytes) -> None:
        """Note the decision of a pass, with these details of the changes."""
        if (record := self._history.find(resource, key)) is not None:
            self._plans[record.id] = plan
            failures = plan.choice.relevant_failures[:_MAX_FAILURES]
            shown = [WITHHELD if record.kind.is_secret else show_error(error) for error in failures]
            text, level = cut("; ".join([word_plan(plan), *shown])), WARNING if failures else INFO
            details = restore_diff(kept, is_secret=record.kind.is_secret) if kept else ()
            self._history.add(record, "look", text, level=level, details=details)

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        backlog, record = self._history.backlog, self._history.find(resource, key)
        if record is None:
            return
        now, plan = backlog.now, self._plans.pop(record.id, None)
        if error is None and plan is not None and plan.saving is Saving.END and plan.progress.states:
            record.failed = any(state.failure for state in plan.progress.states.values())
            record.problem = record.problem if record.failed else ""
        waited = now - (backlog.clock() - started) - record.seen
        self._traffic.note_pass(resource, waited if record.seen and not record.next_at else -1.0)
        if isinstance(error, Exception):
            self._note_error(record, error, "" if delay is None else f"; again in {delay:g} s")
        record.calling = ""
        if record.rest != "gone":
            state = "idle" if delay is None and not record.failed else "failed" if delay is None else "retrying"
            next_at = 0 if delay is None else int((now + delay) * 1000)
            self._history.set_state(record, state, note=record.problem if state != "idle" else "", next_at=next_at)

    def _note_error(self, record: ObjectRecord, error: Exception, again: str) -> None:
        self._errors.add("the framework", error, record)
        record.problem = f"{type(error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(error)
        self._history.add(record, "error", f"{record.problem}{again}", level=ERROR)

    def take_patched(
        self, resource: Resource, before: KubeObject, after: KubeObject, subresource: str | None, kept: bytes
    ) -> None:
        """Note that a patch with these changes is done."""
        head = after.head
        record = self._history.find(resource, head.key)
        if record is None:
            return
        what = subresource or "object"
        text = f"the patch of the {what} changed nothing"
        if not is_same(before.head, head):
            version = head.resourceVersion
            record.own_write = version, self._history.backlog.now
            text = f"patched the {what}, version {version[:_MAX_VERSION]}"
        details = restore_patch(before, kept, is_secret=record.kind.is_secret)
        self._history.add(record, "patch", text, details=details)

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        resource = self._history.find_resource(ref)
        if resource is not None:
            shown = WITHHELD if is_secret(resource) else cut(message)
            level = INFO if type == "Normal" else WARNING
            record = self._history.find(resource, ref.get("uid", ""))
            if record is not None:
                self._history.add(record, "event", f"{cut(reason, 130)}: {shown}", level=level)


class DetailKeeper(Observer):
    """Serialises the differences and the patches, as they can change later. It is called at once."""

    def __init__(self, listener: ObjectListener, backlog: Backlog) -> None:
        self._listener = listener
        self._note = backlog.note_heavy

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        kept = b"" if detection.change is None else keep(detection.change.diff)
        self._note(len(kept), self._listener.take_decided, resource, key, plan, kept)

    def object_patched(
        self, resource: Resource, before: KubeObject, after: KubeObject, subresource: str | None, changes: Any
    ) -> None:
        kept = keep(changes)
        weight = before.size + after.size + len(kept)
        self._note(weight, self._listener.take_patched, resource, before, after, subresource, kept)


class AttemptListener(Observer):
    """Follows the attempts; called late, by the backlog. It never reads results: logins return credentials."""

    def __init__(self, history: History, errors: GroupedErrors, background: BackgroundRuns) -> None:
        self._history = history
        self._errors = errors
        self._background = background
        self._records: dict[int, ObjectRecord] = {}
        """The objects of the running attempts, by the numbers of these."""
        self.secret_indices: set[str] = set()
        """The indices of Secrets."""

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
            self._history.add(record, "attempt", f"daemon {handler.id} started")
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
        is_probe = isinstance(cause, ActivityCause) and cause.activity is Activity.PROBE
        if is_probe or isinstance(handler, IndexingHandler):
            return
        text, level = _describe_attempt(handler, outcome, took, is_withheld=record.kind.is_secret)
        self._history.add(record, "attempt", text, level=level)
        if level != INFO:
            record.problem = text

    def _find(self, cause: Cause) -> ObjectRecord | None:
        """Find the record that the cause is about: of an object, or of the operator itself."""
        if isinstance(cause, ResourceCause):
            return self._history.find(cause.resource, cause.body.object.head.key)
        return self._history.operator if isinstance(cause, ActivityCause) else None


def _describe_attempt(handler: Handler, outcome: Outcome | None, took: float, *, is_withheld: bool) -> tuple[str, int]:
    name, duration = _name(handler), f"{took * 1000:.1f} ms" if took < 1 else f"{took:.1f} s"
    if outcome is None:
        return f"{name} was cancelled after {duration}", WARNING
    error = outcome.exception or outcome.ignored
    if error is None:
        return f"{name} succeeded in {duration}", INFO
    text = type(error).__name__ if is_withheld else show_error(error)
    if outcome.exception is None:
        return f"{name} failed in {duration}, ignored: {text}", WARNING
    if is_withheld:
        text = f"{text}: {WITHHELD}"
    if outcome.final:
        return f"{name} failed permanently in {duration}: {text}", ERROR
    return f"{name} failed in {duration}, again in {outcome.delay or 0:g} s: {text}", WARNING


def _name(handler: Handler) -> str:
    if isinstance(handler, SpawningHandler):
        return f"{'daemon' if isinstance(handler, DaemonHandler) else 'timer'} {handler.id}"
    return str(handler.id)


class _TimelineHandler(logging.Handler):
    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        ref: ObjectReference | None = getattr(record, "k8s_ref", None)
        resource = None if ref is None else self._history.find_resource(ref)
        if ref is None or resource is None:
            return
        key = ref.get("uid") or f"{ref.get('namespace') or ''}/{ref.get('name', '')}"
        level = ERROR if record.levelno >= logging.ERROR else WARNING if record.levelno >= logging.WARNING else INFO
        try:
            text = WITHHELD if is_secret(resource) else cut(record.getMessage())
        except Exception:  # the arguments do not fit; the regular handlers complain of that
            text = cut(str(record.msg))
        self._history.backlog.note(self._add, resource, key, text, level)

    def _add(self, resource: Resource, key: str, text: str, level: int) -> None:
        if (record := self._history.find(resource, key)) is not None:
            self._history.add(record, "log", text, level=level)


@contextlib.contextmanager
def collecting_logs(history: History) -> Iterator[None]:
    """Add the logs of the objects to their timelines inside of the ``with`` block."""
    handler = _TimelineHandler(history)
    objects_logger.addHandler(handler)
    try:
        yield
    finally:
        objects_logger.removeHandler(handler)
