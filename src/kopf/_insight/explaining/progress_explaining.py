"""The progress of handlers in an explanation: of those that are declared, and of those that are not there (anymore)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kopf._controller.changes.handler_state import HandlerState
from kopf._insight.explaining.explanation import AttemptInfo, Outcome, ProgressInfo
from kopf._insight.explaining.redacted_texts import MAX_ERROR, RedactedTexts, shorten, show_time
from kopf._storage.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
)
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject

MAX_LEFTOVERS = 20

_MAX_RECORD = 30_000
"""What is longer, is not a record: errors in them are cut."""

_RECORD_KEYS = frozenset(ProgressRecord.__annotations__)


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
    """Name the last error with its class, if it is known."""
    return shorten(message if exception in (None, message) else f"{exception}: {message}", MAX_ERROR)


def _get_outcome(state: HandlerState | None) -> Outcome:
    if state is None:
        return "pending"
    if state.finished:
        return "succeeded" if state.success else "failed"
    return "retrying" if state.retries else "pending"


def list_record_names(storage: ProgressStorage, ids: tuple[HandlerId, ...]) -> frozenset[str]:
    """List the names of all annotations that there can be for these handlers, and the ids, as in statuses."""
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
    Find the progress of all handlers but the known ones, by whatever operator it was put on the object.

    ``known`` are the names of the annotations and the ids.
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
            except ValueError:
                continue
            if is_record(record):
                yield name, record
    try:
        status = obj.get("status")
    except ValueError:  # it is not to be read
        return
    for stanza in status.values() if isinstance(status, Mapping) else ():
        records = stanza.get("progress") if isinstance(stanza, Mapping) else None
        for key, record in records.items() if isinstance(records, Mapping) else ():
            if is_record(record) and not key.endswith("~digest"):
                yield key, record


def is_record(record: Any) -> bool:
    """Tell if it looks like something that the framework has written."""
    return (
        isinstance(record, dict)
        and isinstance(record.get("started"), str)
        and len(record) > 1
        and record.keys() <= _RECORD_KEYS
    )
