"""
The recorder of Kubernetes events about the objects, both explicit ones and those made of the objects' log messages.

They are posted in the background and never hold or fail the handling. The queue is bounded: when the cluster does
not keep up, the newest events are dropped, and a warning says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
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
"""How many reports can be on their way from other threads; the excessive ones are dropped."""


class Inbox:
    """
    Takes reports in any thread, gives them away in the event loop in which it was made.

    The loop can be blocked meanwhile.
    """

    def __init__(self, take: Callable[[EventReport], None], report_overflow: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._take = take
        self._report_overflow = report_overflow
        self._reports: deque[EventReport] = deque()
        self._is_taking_planned = False
        self._is_overflown = False

    def put(self, report: EventReport) -> None:
        """Take a report in; at once if it is in the event loop. It never blocks and never fails."""
        if _is_in_loop(self.loop):
            self._take(report)
            return
        if len(self._reports) < _INBOX_SIZE:
            self._reports.append(report)
        else:
            self._is_overflown = True
        if not self._is_taking_planned:
            self._is_taking_planned = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, the operator is over
                self.loop.call_soon_threadsafe(self.empty)

    def empty(self) -> None:
        """Give away all that has come so far."""
        self._is_taking_planned = False  # before the rest: who comes later, plans it again
        if self._is_overflown:
            self._is_overflown = False
            self._report_overflow()
        while self._reports:
            self._take(self._reports.popleft())


def _is_in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class EventSink(Protocol):
    """Where the code that is executed in a context reports its events to: the recorder of an operator, usually."""

    @property
    def settings(self) -> OperatorSettings:
        """The settings of the operator."""

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        """Take an event; it never blocks and never fails."""


class EventRecorder:
    """The queue of events of one operator and the workers that post them."""

    def __init__(self, api: APIClient, settings: OperatorSettings) -> None:
        self.settings = settings
        """The settings of the operator."""
        self._inbox = Inbox(self._take, self._report_overflow)
        self._correlator = EventCorrelator(settings.posting)
        self._poster = EventPoster(api, settings.posting)
        self._queue: asyncio.Queue[EventRecord] = asyncio.Queue(maxsize=_QUEUE_SIZE)
        self._warnings = Once()
        self._observer = api.observer

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        """Post an event some time soon. It can be called from any thread; it never blocks and never fails."""
        if ref.get("kind") == "Event" and ref.get("apiVersion") in (None, "v1", "events.k8s.io/v1"):
            return  # events about events multiply endlessly
        now = time_source.get().now()
        self._inbox.put(EventReport(ref, type, reason, message, backoffs, now, is_explicit))

    def _take(self, report: EventReport) -> None:
        record, is_to_be_posted = self._correlator.accept(report, self._inbox.loop.time())
        if is_to_be_posted:
            self._put(record)
        elif not record.is_pending:
            self._observer.event_dropped("limit")
            if self._warnings.is_new("rate"):
                logger.warning(
                    "Events are reported too often (e.g. for %r), so not all of them are posted. "
                    "See settings.posting for the limits.",
                    "/".join(filter(None, [report.ref.get("namespace"), report.ref.get("name")])),
                )

    def _put(self, record: EventRecord) -> None:
        if record.is_busy:
            return  # it is posted once more when the current request is over
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            record.is_pending = False
            self._report_overflow()

    def _report_overflow(self) -> None:
        self._observer.event_dropped("overflow")
        if self._warnings.is_new("full"):
            logger.warning("Too many events are to be posted; the excessive ones are dropped.")

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
        """Wait until all is posted, but not too long (seconds)."""
        self._inbox.empty()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._queue.join()


current_recorder: ContextVar[EventSink] = ContextVar("current_recorder")
"""The recorder of the operator that is running in this context."""


class PostingLogHandler(logging.Handler):
    """
    Makes events of the log messages about the objects of one operator, as configured in ``settings.posting``.

    Those with a ``k8s_reason`` are events in any case, as the explicit ones are.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell if the message is to be posted; the handler is not even locked for all the others."""
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
        self._recorder.enqueue(
            getattr(record, "k8s_ref"),  # noqa: B009  # unknown to the types of the standard library
            type=get_event_type(record.levelno),
            reason=getattr(record, "k8s_reason", "Logging"),
            message=record.getMessage(),  # with no tracebacks: they do not fit
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
    """Let the log messages & the explicit events in this context go to the recorder."""
    handler = PostingLogHandler(recorder)
    objects_logger.addHandler(handler)
    token = current_recorder.set(recorder)
    try:
        yield
    finally:
        current_recorder.reset(token)
        objects_logger.removeHandler(handler)
