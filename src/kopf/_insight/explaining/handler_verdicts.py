"""Handlers in an explanation: does a handler match the object and its changes, and what is its progress."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kopf._controller.changes.handler_states import HandlerState
from kopf._controller.changes.selection import is_for_reason
from kopf._handlers.handlers import (
    ChangingHandler,
    DaemonHandler,
    ResourceHandler,
    SpawningHandler,
    TimerHandler,
    WebhookHandler,
    name_kind,
)
from kopf._insight.explaining.dry_run import DryRun, Facts
from kopf._insight.explaining.explanation import (
    AttemptInfo,
    HandlerInfo,
    Outcome,
    ProgressInfo,
    Rejection,
    RunInfo,
    Verdict,
)
from kopf._insight.explaining.redacted_texts import MAX_ERROR, RedactedTexts, describe_callback, shorten, show_time
from kopf._insight.explaining.rejections import Filters
from kopf._storage.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
)
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.objects import KubeObject
from kopf._values.reasons import Reason
from kopf._values.records import FrozenRecord, field

MAX_LEFTOVERS = 20

_MAX_RECORD = 30_000
"""Longer texts are not records, as their errors are cut, in characters."""

_RECORD_KEYS = frozenset(ProgressRecord.__annotations__)

_PURPOSES = {
    "create": "creations",
    "update": "updates",
    "delete": "deletions",
    "resume": "resuming, i.e. once after each start of an operator",
    "field": "changes of its field",
    "reconcile": "any change",
}

TITLES: Mapping[Reason, str] = {
    Reason.CREATE: "creation",
    Reason.UPDATE: "update",
    Reason.DELETE: "deletion",
    Reason.RESUME: "resuming",
    Reason.NOOP: "nothing new",
    Reason.FREE: "deleted, none of our business",
    Reason.GONE: "gone",
}
"""The titles of the reasons of handlers."""

SITUATIONS: Mapping[Reason, str] = {
    Reason.CREATE: "the object is new: it was never handled to the end",
    Reason.UPDATE: "the object has changed since it was handled last",
    Reason.DELETE: "the object is being deleted, and waits for the operator",
    Reason.RESUME: "nothing has changed since the object was handled last, but the operator has not resumed it yet",
    Reason.NOOP: "nothing has changed since the object was handled last",
    Reason.FREE: "the object is being deleted, and does not wait for the operator",
    Reason.GONE: "the object no longer exists",
}
"""The same in sentences."""


def explain_other_reason(handler: ChangingHandler, reason: Reason) -> str:
    """Say why the handler, which matches the object, is not called for this reason."""
    text = _explain_own_reason(handler, reason)
    if handler.owns and reason is not Reason.DELETE:
        owned = " or ".join(map(str, handler.owns))
        text = f"{text}; it is also called when {owned} that the object owns are changed"
    if handler.uses and reason is not Reason.DELETE:
        used = " or ".join(str(item.selector) for item in handler.uses)
        text = f"{text}; it is also called when {used} that the object uses are changed"
    return text


def _explain_own_reason(handler: ChangingHandler, reason: Reason) -> str:
    kind = name_kind(handler)
    purpose = f"is for {_PURPOSES[kind]}"
    if kind == "delete" and reason is not Reason.FREE:
        return f"{purpose}, but the object is not being deleted"
    if kind == "resume":
        if reason is Reason.DELETE:
            return f"{purpose}, but not of objects that are being deleted: that needs deleted=True"
        return f"{purpose}: this one has resumed the object, or it was created after the start"
    if kind == "create" and reason in (Reason.UPDATE, Reason.NOOP, Reason.RESUME):
        return f"{purpose}, but the object was already handled"
    return f"{purpose}, but {SITUATIONS[reason]}"


class Finding(FrozenRecord, frozen=True):
    """The verdict on a handler."""

    verdict: Verdict
    text: str
    rejections: list[Rejection] = field(default_factory=list)


class HandlerExplainer:
    """Explains the handlers for one object."""

    def __init__(self, facts: Facts, dry_run: DryRun, texts: RedactedTexts) -> None:
        self._facts = facts
        self._dry_run = dry_run
        self._texts = texts

    def explain(self, handler: ResourceHandler) -> HandlerInfo:
        """Explain one handler."""
        finding = self._check(handler)
        return HandlerInfo(
            id=handler.id,
            kind=name_kind(handler),
            function=describe_callback(handler.fn),
            verdict=finding.verdict,
            text=finding.text,
            rejections=finding.rejections,
            progress=self._explain_progress(handler, finding),
            subhandlers=self._list_subhandlers(handler, finding),
            run=self._explain_run(handler) if isinstance(handler, SpawningHandler) else None,
        )

    def _check(self, handler: ResourceHandler) -> Finding:
        filters = Filters(handler, self._dry_run.make_cause(handler), self._texts)
        if rejections := filters.list_rejections():
            return _reject(rejections)
        if isinstance(handler, ChangingHandler):
            finding = self._check_change(handler, filters)
        else:
            finding = Finding("matching", _describe_duty(handler))
        if finding.verdict not in ("called", "matching") or isinstance(handler, WebhookHandler):
            return finding
        try:
            self._dry_run.make_cause(handler).check_fit(handler)
        except ModelMismatchError as e:
            return Finding("later", f"{self._texts.show_error(e)}; it waits until that is changed")
        return finding

    def _check_change(self, handler: ChangingHandler, filters: Filters) -> Finding:
        plan, carried = self._dry_run.plan, self._facts.carried
        if any(item is handler for item in plan.called):
            others = [item for item in plan.called if item.id == handler.id and item is not handler]
            names = " and ".join(describe_callback(item.fn) for item in others)
            also = f", as is {names} with the same id: only one is called" if others else ""
            return Finding("called", f"is for this {TITLES[plan.reason]}{also}")
        if not is_for_reason(handler, plan.reason, carried.initial, carried.woken or ()):
            return Finding("later", explain_other_reason(handler, plan.reason))
        if rejections := filters.list_change_rejections():
            return _reject(rejections)
        return Finding("later", "is another declaration of a function that is called for this change anyway")

    def _explain_progress(self, handler: ResourceHandler, finding: Finding) -> ProgressInfo | None:
        """Describe the progress; of several handlers with one id, only for the called one."""
        if not isinstance(handler, ChangingHandler):
            return None
        plan = self._dry_run.plan
        progress = self._make_progress(handler.id, plan.progress.states.get(handler.id))
        is_own = finding.verdict == "called" or progress is None or progress["purpose"] != plan.reason.value
        return progress if is_own else None

    def _make_progress(self, id: HandlerId, state: HandlerState | None) -> ProgressInfo | None:
        """Describe the progress of the handler; return ``None`` if it was not called."""
        live, unsaved = self._facts.live, self._facts.carried.unsaved
        state = self._dry_run.saved.recall(id) if state is None else state
        running = None if live is None else live.running.get(id)
        if running is None and (state is None or (not state.retries and not state.finished)):
            return None
        is_saved = unsaved is None or id not in unsaved.states
        return make_progress(id, state, running=running, is_saved=is_saved, texts=self._texts)

    def _list_subhandlers(self, handler: ResourceHandler, finding: Finding) -> list[ProgressInfo]:
        """Describe all sub-handlers that were ever seen under this handler."""
        if not isinstance(handler, ChangingHandler) or finding.verdict != "called":
            return []
        state = self._dry_run.saved.recall(handler.id)
        found = [self._make_progress(id, None) for id in (() if state is None else state.subrefs)]
        return [info for info in found if info is not None]

    def _explain_run(self, handler: SpawningHandler) -> RunInfo | None:
        live = self._facts.live
        if live is None:
            return None
        absent = RunInfo(state="absent", text="does not run", attempts=0, since=None, next=None, error=None)
        return live.runs.get(handler.id, absent)


def _reject(rejections: list[Rejection]) -> Finding:
    is_unknown = any(rejection["error"] is not None for rejection in rejections)
    text = "; ".join(rejection["text"] for rejection in rejections)
    return Finding("unknown" if is_unknown else "rejected", text, rejections)


def _describe_duty(handler: ResourceHandler) -> str:
    """Say when the handler is called, as it matches the object."""
    match handler:
        case WebhookHandler():
            operations = "all operations" if handler.operations is None else ", ".join(sorted(handler.operations))
            what = f" of the subresource {handler.subresource!r}" if handler.subresource else ""
            asked = [item for item in (handler.when, handler.value) if callable(item)]
            asked += [item for item in (handler.labels or {}).values() if callable(item)]
            asked += [item for item in (handler.annotations or {}).values() if callable(item)]
            also = f", if {' and '.join(map(describe_callback, asked))} agree" if asked else ""
            return f"is asked about {operations}{what}{also}"
        case TimerHandler():
            return "runs for the object again and again"
        case DaemonHandler():
            return "runs for as long as the object exists"
    return "is called for every event of the object" if name_kind(handler) == "event" else "indexes the object"


def make_progress(
    key: str,
    state: HandlerState | None,
    *,
    running: AttemptInfo | None = None,
    is_saved: bool = True,
    texts: RedactedTexts,
) -> ProgressInfo:
    """Describe the state of a handler."""
    message = None if state is None or state.message is None else _describe_error(state.message, state.exception)
    has_next = state is not None and not state.finished and running is None
    return ProgressInfo(
        handler=key,
        outcome="running" if running is not None else _get_outcome(state),
        attempts=0 if state is None else state.retries,
        started=running["at"] if running is not None else None if state is None else show_time(state.started),
        next=None if state is None or not has_next else show_time(state.delayed),
        error=message if message is None or not texts.is_secret else "(hidden)",
        purpose=None if state is None else state.purpose,
        saved=is_saved,
    )


def _describe_error(message: str, exception: str | None) -> str:
    """Describe the last error, with its class if it is known."""
    return shorten(message if exception in (None, message) else f"{exception}: {message}", MAX_ERROR)


def _get_outcome(state: HandlerState | None) -> Outcome:
    if state is None:
        return "pending"
    if state.finished:
        return "succeeded" if state.success else "failed"
    return "retrying" if state.retries else "pending"


def list_record_names(storage: ProgressStorage, ids: tuple[HandlerId, ...]) -> frozenset[str]:
    """List the possible names of annotations for these handlers, and the ids, which are the names in the status."""
    names = frozenset[str](ids)
    if isinstance(storage, AnnotationsProgressStorage):
        names |= storage.list_names(ids)
    for part in storage.storages if isinstance(storage, MultiProgressStorage) else ():
        names |= list_record_names(part, ids)
    return names


def list_leftovers(
    obj: KubeObject, known: Iterable[str], *, now: datetime.datetime, texts: RedactedTexts
) -> list[ProgressInfo]:
    """
    Find the progress of all handlers but the known ones, from any operator.

    ``known`` are the names of the annotations, and the ids.
    """
    known = {*known}
    found: dict[str, ProgressInfo] = {}
    for name, record in _find_records(obj):
        if name not in known:
            state = HandlerState.from_record(record, now=now)
            found.setdefault(name, make_progress(name, state, texts=texts))
    return [*found.values()][:MAX_LEFTOVERS]


def _find_records(obj: KubeObject) -> Iterator[tuple[str, ProgressRecord]]:
    for name, text in (obj.head.annotations or {}).items():
        if "started" in text and len(text) <= _MAX_RECORD:
            try:
                record = codec.decode(text)
            except ValueError:  # not JSON: an annotation of somebody else, which can be any text
                continue
            if is_record(record):
                yield name, record
    status = obj.get("status")
    for stanza in status.values() if isinstance(status, Mapping) else ():
        records = stanza.get("progress") if isinstance(stanza, Mapping) else None
        for key, record in records.items() if isinstance(records, Mapping) else ():
            if is_record(record) and not key.endswith("~digest"):
                yield key, record


def is_record(record: Any) -> bool:
    """Tell if it looks like a record of the framework."""
    return (
        isinstance(record, dict)
        and isinstance(record.get("started"), str)
        and len(record) > 1
        and record.keys() <= _RECORD_KEYS
    )
