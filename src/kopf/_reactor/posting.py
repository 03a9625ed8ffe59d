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
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from kopf._client.api import APIClient
from kopf._client.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError
from kopf._settings.settings import Delays, OperatorSettings
from kopf._values.references import ObjectReference, build_object_reference
from kopf._values.resources import EVENTS

logger = logging.getLogger(__name__)

MAX_MESSAGE_LENGTH = 1024
"""Longer messages are refused by Kubernetes (validation of core/v1 events)."""
_QUEUE_SIZE = 1000
_WORKERS = 4
_CUT = "..."


class _Posting(NamedTuple):
    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: Delays
    time: datetime.datetime


class EventPoster:
    """The queue of events of one operator and the workers that post them."""

    def __init__(self, api: APIClient, settings: OperatorSettings) -> None:
        self._api = api
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Posting] = asyncio.Queue(maxsize=_QUEUE_SIZE)
        self._reported: set[str] = set()

    @property
    def settings(self) -> OperatorSettings:
        """The settings of the operator."""
        return self._settings

    def enqueue(self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays) -> None:
        """Post an event some time soon. It can be called from any thread; it never blocks and never fails."""
        if ref.get("kind") == "Event" and ref.get("apiVersion") in ("v1", "events.k8s.io/v1"):
            return  # events about events multiply endlessly
        posting = _Posting(ref, type, reason, _cut(message), backoffs, datetime.datetime.now(datetime.UTC))
        if _is_in_loop(self._loop):
            self._put(posting)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, posting)

    def _put(self, posting: _Posting) -> None:
        try:
            self._queue.put_nowait(posting)
        except asyncio.QueueFull:
            self._report_once("full", "Too many events are to be posted; the excessive ones are dropped.")

    async def run(self) -> None:
        """Post the events forever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.posting.worker_limit or _WORKERS):
                group.create_task(self._work(), name="poster of events")

    async def _work(self) -> None:
        while True:
            posting = await self._queue.get()
            try:
                await self._post(posting)
            finally:
                self._queue.task_done()

    async def flush(self, timeout: float) -> None:
        """Wait until all is posted, but not too long (seconds)."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), timeout)

    async def _post(self, posting: _Posting) -> None:
        namespace = posting.ref.get("namespace") or "default"
        path = EVENTS.get_url(namespace=namespace)
        try:
            await self._api.post(path, payload=self._build(posting, namespace), backoffs=posting.backoffs)
        except APIForbiddenError as e:
            self._report_once(
                f"forbidden in {namespace}",
                f"Events cannot be posted in the namespace {namespace!r}: {e} "
                "Permit the verb 'create' on 'events' of the API group '', or set settings.posting.enabled = False.",
            )
        except (APIError, APINetworkError, LoginError) as e:
            logger.warning("Failed to post an event for %r: %s", dict(posting.ref), e)

    def _report_once(self, key: str, message: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            logger.warning(message)

    def _build(self, posting: _Posting, namespace: str) -> Mapping[str, Any]:
        settings = self._settings.posting
        now = posting.time.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "generateName": settings.event_name_prefix},
            "action": "Handling",
            "type": posting.type,
            "reason": posting.reason,
            "message": posting.message,
            "reportingComponent": settings.reporting_component,
            "reportingInstance": settings.reporting_instance,
            "source": {"component": settings.reporting_component},
            "involvedObject": posting.ref,
            "firstTimestamp": now[:19] + "Z",
            "lastTimestamp": now[:19] + "Z",
            "eventTime": now,
            "count": 1,
        }


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


current_poster: ContextVar[EventPoster] = ContextVar("current_poster")
"""The poster of the operator that is running in this context."""


class PostingLogHandler(logging.Handler):
    """Makes events of the log messages about the objects of one operator, as configured in ``settings.posting``."""

    def __init__(self, poster: EventPoster) -> None:
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
            )


def _get_type(level: int) -> str:
    if level >= logging.ERROR:
        return "Error"
    return "Warning" if level >= logging.WARNING else "Normal"


@contextlib.contextmanager
def posting(poster: EventPoster) -> Iterator[None]:
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
