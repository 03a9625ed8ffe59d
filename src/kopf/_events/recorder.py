"""
Posting: Kubernetes events about the objects, both explicit ones and those made of the objects' log messages.

They are posted in the background and never hold or fail the handling. The queue is bounded: when the cluster does
not keep up, the newest events are dropped, and a warning says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._client.http.api import APIClient
from kopf._events.correlation import EventCorrelator, EventRecord
from kopf._settings.settings import Delays, OperatorSettings
from kopf._values import codec
from kopf._values.permissions import format_advice
from kopf._values.references import ObjectReference, build_object_reference
from kopf._values.resources import EVENTS

logger = logging.getLogger(__name__)

MAX_MESSAGE_LENGTH = 1024
"""Longer messages are refused by Kubernetes (validation of core/v1 events)."""
MAX_REASON_LENGTH = 128
"""Longer reasons are refused, too."""
_QUEUE_SIZE = 1000
_WORKERS = 4
_DENIAL_BACKOFF = 60.0
"""How often to try again what was not permitted, in seconds."""
_CUT = "..."


class _Report(NamedTuple):
    """An event as it is reported by those who want it to be posted."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: Delays
    time: datetime.datetime
    is_explicit: bool


class EventRecorder:
    """The queue of events of one operator and the workers that post them."""

    def __init__(self, api: APIClient, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._incoming: deque[_Report] = deque()
        self._is_taking_planned = False
        self._is_overflown = False
        self._correlator = EventCorrelator(settings.posting)
        self._queue: asyncio.Queue[EventRecord] = asyncio.Queue(maxsize=_QUEUE_SIZE)
        self._denied_until: dict[tuple[str, str], float] = {}
        self._reported: set[str] = set()

    @property
    def settings(self) -> OperatorSettings:
        """The settings of the operator."""
        return self._settings

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        """Post an event some time soon. It can be called from any thread; it never blocks and never fails."""
        if ref.get("kind") == "Event" and ref.get("apiVersion") in (None, "v1", "events.k8s.io/v1"):
            return  # events about events multiply endlessly
        now = datetime.datetime.now(datetime.UTC)
        report = _Report(ref, type, reason, message, backoffs, now, is_explicit)
        if _is_in_loop(self._loop):
            self._take(report)
        else:  # in another thread; the loop can be blocked meanwhile
            if len(self._incoming) < _QUEUE_SIZE:
                self._incoming.append(report)
            else:
                self._is_overflown = True
            if not self._is_taking_planned:
                self._is_taking_planned = True
                with contextlib.suppress(RuntimeError):  # the loop is closed, the operator is over
                    self._loop.call_soon_threadsafe(self._take_all)

    def _take_all(self) -> None:
        self._is_taking_planned = False  # before the rest: who comes later, plans it again
        if self._is_overflown:
            self._report_overflow()
        while self._incoming:
            self._take(self._incoming.popleft())

    def _take(self, report: _Report) -> None:
        record, is_to_be_posted = self._correlator.accept(
            report.ref,
            type=report.type,
            reason=report.reason,
            message=report.message,
            backoffs=report.backoffs,
            when=report.time,
            now=self._loop.time(),
            is_explicit=report.is_explicit,
        )
        if is_to_be_posted:
            self._put(record)
        elif not record.is_pending:
            name = "/".join(filter(None, [report.ref.get("namespace"), report.ref.get("name")]))
            self._report_once(
                "rate",
                f"Events are reported too often (e.g. for {name!r}), so not all of them are posted. "
                "See settings.posting for the limits.",
            )

    def _put(self, record: EventRecord) -> None:
        if record.is_busy:
            return  # it is posted once more when the current request is over
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            record.is_pending = False
            self._report_overflow()

    async def run(self) -> None:
        """Post the events forever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.posting.worker_limit or _WORKERS):
                group.create_task(self._work(), name="poster of events")

    async def _work(self) -> None:
        while True:
            record = await self._queue.get()
            try:
                record.is_busy, record.is_pending = True, False
                await self._post(record)
            finally:
                record.is_busy = False
                if record.is_pending:
                    self._put(record)
                self._queue.task_done()

    async def flush(self, timeout: float) -> None:
        """Wait until all is posted, but not too long (seconds)."""
        self._take_all()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), timeout)

    async def _post(self, record: EventRecord) -> None:
        verb = "create" if record.name is None else "patch"
        key = (verb, record.namespace)
        if self._loop.time() < self._denied_until.get(key, 0):
            return
        try:
            await (self._create(record) if record.name is None else self._update(record, record.name))
        except APIForbiddenError as e:
            if _is_terminating(e):
                logger.debug("No event can be posted in the namespace %r anymore: %s", record.namespace, e)
            else:
                self._denied_until[key] = self._loop.time() + _DENIAL_BACKOFF
                self._explain_denial(verb, record.namespace, e)
        except (APIError, APINetworkError, LoginError) as e:
            logger.warning("Failed to post an event for %r: %s", dict(record.ref), e)

    async def _create(self, record: EventRecord) -> None:
        path = EVENTS.get_url(namespace=record.namespace)
        content = await self._api.post(path, payload=self._build(record), backoffs=record.backoffs)
        record.name = codec.decode(content)["metadata"]["name"]

    async def _update(self, record: EventRecord, name: str) -> None:
        path = EVENTS.get_url(namespace=record.namespace, name=name)
        changes = {"count": record.count, "lastTimestamp": _format(record.last), "message": _cut(record.message)}
        try:
            await self._api.patch(path, payload=changes, backoffs=record.backoffs)
        except APINotFoundError:  # events are not kept for long
            await self._create(record)

    def _explain_denial(self, verb: str, namespace: str, error: APIForbiddenError) -> None:
        if verb == "patch":
            problem = f"How often the events repeat is not posted in the namespace {namespace!r}"
        else:
            problem = f"Events cannot be posted in the namespace {namespace!r}"
        advice = format_advice(EVENTS, ("create", "patch"), namespace=namespace)
        self._report_once(
            f"{verb} in {namespace}", f"{problem}: {error}. {advice}. Or set settings.posting.enabled = False."
        )

    def _report_overflow(self) -> None:
        self._report_once("full", "Too many events are to be posted; the excessive ones are dropped.")

    def _report_once(self, key: str, message: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            logger.warning(message)

    def _build(self, record: EventRecord) -> Mapping[str, Any]:
        settings = self._settings.posting
        first, last = _format(record.first), _format(record.last)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": record.namespace, "generateName": settings.event_name_prefix},
            "action": "Handling",
            "type": record.type,
            "reason": record.reason[:MAX_REASON_LENGTH],
            "message": _cut(record.message),
            "reportingComponent": settings.reporting_component,
            "reportingInstance": settings.reporting_instance,
            "source": {"component": settings.reporting_component},
            "involvedObject": record.ref,
            "firstTimestamp": first,
            "lastTimestamp": last,
            "eventTime": _format(record.first, timespec="microseconds"),
            "count": record.count,
        }


def _format(moment: datetime.datetime | None, timespec: str = "seconds") -> str | None:
    return None if moment is None else moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def _is_terminating(error: APIForbiddenError) -> bool:
    """Tell if it is refused because the namespace is being deleted: nothing can be created there, with any role."""
    causes = error.details.get("causes")
    causes = causes if isinstance(causes, list) else []
    return any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _cut(message: str) -> str:
    """Cut from the middle: the beginning says what it is about, the end says what is wrong."""
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    half = (MAX_MESSAGE_LENGTH - len(_CUT)) // 2
    return message[:half] + _CUT + message[-half:]


def _is_in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


current_poster: ContextVar[EventRecorder] = ContextVar("current_poster")
"""The poster of the operator that is running in this context."""


class PostingLogHandler(logging.Handler):
    """Makes events of the log messages about the objects of one operator, as configured in ``settings.posting``."""

    def __init__(self, poster: EventRecorder) -> None:
        super().__init__()
        self._poster = poster

    def emit(self, record: logging.LogRecord) -> None:
        ref = getattr(record, "k8s_ref", None)
        if ref is None or getattr(record, "k8s_skip", False) or current_poster.get(None) is not self._poster:
            return
        settings = self._poster.settings.posting
        if settings.enabled and settings.loggers and record.levelno >= settings.level:
            self._poster.enqueue(
                ref,
                type=_get_type(record.levelno),
                reason="Logging",
                message=record.getMessage(),  # with no tracebacks: they do not fit
                backoffs=settings.logging_backoffs,
                is_explicit=False,
            )


def _get_type(level: int) -> str:
    if level >= logging.ERROR:
        return "Error"
    return "Warning" if level >= logging.WARNING else "Normal"


@contextlib.contextmanager
def posting(poster: EventRecorder) -> Iterator[None]:
    """Let the log messages & the explicit events in this context go to the poster."""
    handler = PostingLogHandler(poster)
    objects_logger = logging.getLogger("kopf.objects")
    objects_logger.addHandler(handler)
    token = current_poster.set(poster)
    try:
        yield
    finally:
        current_poster.reset(token)
        objects_logger.removeHandler(handler)


def event(objs: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, type: str, reason: str, message: str = "") -> None:
    """
    Post an event about one or several objects.

    It is posted in the background; nothing is posted if ``settings.posting.enabled`` is off, or for the objects which
    are events themselves. Raises :class:`LookupError` if it is called from outside of an operator.
    """
    try:
        poster = current_poster.get()
    except LookupError:
        raise LookupError("Events can only be posted by the code that is executed by a running operator.") from None
    settings = poster.settings.posting
    if settings.enabled:
        for obj in [objs] if isinstance(objs, Mapping) else objs:
            poster.enqueue(
                build_object_reference(obj),
                type=type,
                reason=reason,
                message=message,
                backoffs=settings.default_backoffs,
            )


def info(objs: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, reason: str, message: str = "") -> None:
    """Post a normal event; not posted if ``settings.posting.level`` is higher than ``INFO``."""
    _event_of_level(objs, logging.INFO, reason, message)


def warn(objs: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, reason: str, message: str = "") -> None:
    """Post a warning; not posted if ``settings.posting.level`` is higher than ``WARNING``."""
    _event_of_level(objs, logging.WARNING, reason, message)


def exception(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reason: str = "",
    message: str = "",
    exc: BaseException | None = None,
) -> None:
    """Post an error with the exception: the specified one, or the one being handled now."""
    exc = exc if exc is not None else sys.exc_info()[1]
    description = "" if exc is None else "".join(traceback.format_exception_only(exc)).strip()
    text = " ".join(part for part in (message, str(exc or "") or description) if part)
    _event_of_level(objs, logging.ERROR, reason or (type(exc).__name__ if exc is not None else "Error"), text)


def _event_of_level(
    objs: Mapping[str, Any] | Iterable[Mapping[str, Any]], level: int, reason: str, message: str
) -> None:
    poster = current_poster.get(None)
    if poster is None or level >= poster.settings.posting.level:
        event(objs, type=_get_type(level), reason=reason, message=message)
