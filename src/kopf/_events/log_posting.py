"""
The recorder of Kubernetes events about objects: of explicit events, and of events made from log messages.

Events are posted in the background. They never delay or fail the handling. The queue is bounded: when the cluster does
not keep up, the newest events are dropped, and one warning says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

from kopf._client.http.api import APIClient
from kopf._events.correlation import EventCorrelator
from kopf._events.event_records import EventRecord, EventReport
from kopf._events.poster import EventPoster
from kopf._handlers.time_source import time_source
from kopf._logging.loggers import objects_logger
from kopf._logging.once import Once
from kopf._settings.settings import Delays, OperatorSettings
from kopf._values.references import ObjectReference

logger = logging.getLogger(__name__)

_QUEUE_SIZE = 1000
_WORKERS = 4

_INBOX_SIZE = 1000
"""The largest number of reports on their way from other threads to the event loop, which can be blocked."""


class EventSink(Protocol):
    """The receiver of the events that are reported in a context: usually, the recorder of an operator."""

    @property
    def settings(self) -> OperatorSettings:
        """The settings of the operator."""

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        """Take an event. It never blocks and never fails."""


class EventRecorder:
    """The queue of events of one operator and the workers that post them."""

    def __init__(self, api: APIClient, settings: OperatorSettings) -> None:
        self.settings = settings
        """The settings of the operator."""
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[EventReport] = deque()
        self._correlator = EventCorrelator(settings.posting)
        self._poster = EventPoster(api, settings.posting)
        self._queue: asyncio.Queue[EventRecord] = asyncio.Queue(maxsize=_QUEUE_SIZE)
        self._warnings = Once()
        self._observer = api.observer

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        """Post an event soon. It can be called from any thread. It never blocks and never fails."""
        if ref.get("kind") == "Event" and ref.get("apiVersion") in (None, "v1", "events.k8s.io/v1"):
            return  # events about events multiply endlessly
        report = EventReport(ref, type, reason, message, backoffs, time_source.get().now(), is_explicit)
        if self._is_in_loop():
            self._take(report)
        elif len(self._inbox) < _INBOX_SIZE:
            self._inbox.append(report)
            with contextlib.suppress(RuntimeError):  # the loop is closed, the operator has ended
                self._loop.call_soon_threadsafe(self._empty_inbox)
        else:
            self._report_overflow()

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _empty_inbox(self) -> None:
        while self._inbox:
            self._take(self._inbox.popleft())

    def _take(self, report: EventReport) -> None:
        record, is_to_be_posted = self._correlator.accept(report, self._loop.time())
        if is_to_be_posted:
            self._put(record)
        elif not record.is_pending:
            self._observer.event_dropped("limit")
            if self._warnings.is_new("rate"):
                logger.warning(
                    "Events are reported too often (e.g. for %r), so some of them are not posted. "
                    "See settings.posting for the limits.",
                    "/".join(filter(None, [report.ref.get("namespace"), report.ref.get("name")])),
                )

    def _put(self, record: EventRecord) -> None:
        if record.is_busy:
            return  # the current request is followed by another one
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            record.is_pending = False
            self._report_overflow()

    def _report_overflow(self) -> None:
        self._observer.event_dropped("overflow")
        if self._warnings.is_new("full"):
            logger.warning("Too many events are waiting to be posted; the excess is dropped.")

    async def run(self) -> None:
        """Post the events forever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.posting.worker_limit or _WORKERS):
                group.create_task(self._work(), name="poster of events")

    async def _work(self) -> None:
        while True:
            record = await self._queue.get()
            try:
                record.is_busy, record.is_pending = True, False
                await self._poster.post(record)
            finally:
                record.is_busy = False
                if record.is_pending:
                    self._put(record)
                self._queue.task_done()

    async def flush(self, timeout: float) -> None:
        """Wait until all events are posted, but no longer than the timeout, in seconds."""
        self._empty_inbox()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._queue.join()


current_recorder: ContextVar[EventSink] = ContextVar("current_recorder")
"""The recorder of the operator that runs in this context."""


class PostingLogHandler(logging.Handler):
    """
    Makes events from the log messages about the objects of one operator, as ``settings.posting`` says.

    Messages with a ``k8s_reason`` always become events, as explicit events do.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell if the message becomes an event. For all others, the handler is not even locked."""
        settings = self._recorder.settings.posting
        return (
            settings.enabled
            and record.levelno >= settings.level
            and getattr(record, "k8s_ref", None) is not None
            and (hasattr(record, "k8s_reason") or (settings.loggers and not getattr(record, "k8s_skip", False)))
            and current_recorder.get(None) is self._recorder
            and bool(super().filter(record))
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()  # without tracebacks, which do not fit
        except Exception:  # the arguments do not fit; the regular handlers complain, and the caller goes on
            return
        self._recorder.enqueue(
            getattr(record, "k8s_ref"),  # noqa: B009  # unknown to the types of the standard library
            type=get_event_type(record.levelno),
            reason=getattr(record, "k8s_reason", "Logging"),
            message=message,
            backoffs=self._recorder.settings.posting.logging_backoffs,
            is_explicit=hasattr(record, "k8s_reason"),
        )


def get_event_type(level: int) -> str:
    """Get the type of events for a level of :mod:`logging`."""
    if level >= logging.ERROR:
        return "Error"
    return "Warning" if level >= logging.WARNING else "Normal"


@contextlib.contextmanager
def posting(recorder: EventRecorder) -> Iterator[None]:
    """Send the log messages and the explicit events of this context to the recorder."""
    handler = PostingLogHandler(recorder)
    objects_logger.addHandler(handler)
    token = current_recorder.set(recorder)
    try:
        yield
    finally:
        current_recorder.reset(token)
        objects_logger.removeHandler(handler)
