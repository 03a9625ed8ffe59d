"""
All traces of one operator, made by its observers: of passes, and of work inside or outside passes.

Log records have the current trace and span in the attributes ``trace_id`` & ``span_id``, if there are any.
"""

from __future__ import annotations

import contextlib
import logging
import urllib.parse
from collections.abc import Iterator
from contextvars import Token
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kopf._client.client_observer import Headers
from kopf._controller.observer import Observer, Observers, Review
from kopf._handlers.attempts import Attempt, Outcome, name_outcome, name_reason
from kopf._handlers.causes import Cause, ResourceCause, WebhookCause
from kopf._handlers.handler_errors import TemporaryError
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._insight.tracing.pass_spans import MAX_SPANS, Attributes, PassSpans, describe_object
from kopf._values.lru_dict import LRUDict
from kopf._values.references import ObjectReference
from kopf._values.reviews import Response

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class _Factory:
    """Makes the records with the previous factory, and adds the attributes while there are users."""

    def __init__(self) -> None:
        self.previous = logging.getLogRecordFactory()
        self.users = 0

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.previous(*args, **kwargs)
        if self.users:
            span = trace.get_current_span().get_span_context()
            if span.is_valid:
                record.trace_id = trace.format_trace_id(span.trace_id)
                record.span_id = trace.format_span_id(span.span_id)
        return record


@contextlib.contextmanager
def marking_logs() -> Iterator[None]:
    """Mark all log records that are made inside of the block, in all threads."""
    current = logging.getLogRecordFactory()
    factory = current if isinstance(current, _Factory) else _Factory()
    logging.setLogRecordFactory(factory)
    factory.users += 1
    try:
        yield
    finally:
        factory.users -= 1
        if not factory.users and logging.getLogRecordFactory() is factory:  # no other factory wraps it
            logging.setLogRecordFactory(factory.previous)


class AttemptSpans(Observer):
    """Makes the spans of attempts; attempts outside of passes (timers, daemons, raw events) begin traces."""

    def __init__(self, tracer: Tracer, objects: LRUDict[str, SpanContext]) -> None:
        self._tracer = tracer
        self._objects = objects
        self._attempts = LRUDict[tuple[str, str], SpanContext](MAX_SPANS)
        """The attempts that will be repeated, by the uids of objects and the ids of handlers."""
        self._spans: dict[int, tuple[Span, Token[context.Context]]] = {}

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: Attempt) -> None:
        if isinstance(handler, IndexingHandler) or not isinstance(cause, ResourceCause):
            return
        attributes: Attributes = {
            "kopf.handler": handler.id,
            "kopf.reason": name_reason(handler, cause),
            "kopf.retry": attempt.retry,
        }
        if not trace.get_current_span().get_span_context().is_valid:
            attributes |= describe_object(cause.resource, cause.body.object)
        key = cause.body.object.head.key
        previous = self._attempts.get((key, handler.id)) if attempt.retry else None
        links = [] if previous is None else [Link(previous, {"kopf.link": "previous attempt"})]
        span = self._tracer.start_span(f"handler {handler.id}", attributes=attributes, links=links)
        if not isinstance(cause, WebhookCause):
            self._objects.note(key, span.get_span_context())
        self._spans[number] = (span, context.attach(trace.set_span_in_context(span)))

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        if number not in self._spans:
            return
        span, token = self._spans.pop(number)
        context.detach(token)
        span.set_attribute("kopf.outcome", name_outcome(outcome))
        error = None if outcome is None else outcome.exception
        if error is not None:
            # Without the texts, as these can contain anything. They are in the logs, which have the id of the span.
            span.set_attribute("error.type", type(error).__name__)
            if (outcome is not None and outcome.final) or not isinstance(error, TemporaryError):
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        if isinstance(cause, ResourceCause) and not isinstance(cause, WebhookCause):
            key = (cause.body.object.head.key, handler.id)
            if outcome is not None and not outcome.final:
                self._attempts.note(key, span.get_span_context())
            else:
                self._attempts.pop(key, None)
        span.end()


_TRACE_HEADER = "traceparent"


class RequestSpans(Observer):
    """Makes the spans of requests."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._spans: dict[str, Span] = {}
        """The spans by their headers, which name the spans."""

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        if not trace.get_current_span().get_span_context().is_valid:
            return headers
        path, url = target.partition("?")[0], urllib.parse.urlsplit(server)
        span = self._tracer.start_span(
            f"{method} {name_route(path)}".strip(),
            kind=SpanKind.CLIENT,
            attributes={
                "http.request.method": method,
                "url.path": path,
                "server.address": url.hostname or "",
                **({} if url.port is None else {"server.port": url.port}),
            },
        )
        sent = {**(headers or {})}
        self._propagator.inject(sent, trace.set_span_in_context(span))
        self._spans[sent.get(_TRACE_HEADER, "")] = span
        return sent

    def request_ended(
        self,
        method: str,
        server: str,
        status: int | None,
        error: BaseException | None,
        started: float,
        headers: Headers,
    ) -> None:
        span = None if headers is None else self._spans.pop(headers.get(_TRACE_HEADER, ""), None)
        if span is None:
            return
        problem = "" if error is None else type(error).__name__
        if status is not None:
            span.set_attribute("http.response.status_code", status)
            problem = str(status) if status >= 400 else problem
        if problem:
            span.set_attribute("error.type", problem)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def name_route(path: str) -> str:
    """Name the resource of the path without names of objects: ``kopfexamples/status``; empty if it is none."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join([*rest[:1], *rest[2:]])


class ReviewSpans(Observer):
    """
    Makes the spans of reviews: each is the current span until the review is answered.

    A span continues the trace of a caller with a verified certificate. Other callers could put it into any trace, and
    decide about its sampling, so it is only linked to their traces.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._spans: dict[Review, tuple[Span, Token[context.Context]]] = {}

    def review_begun(self, review: Review) -> None:
        headers = {name.lower(): value for name, value in review.headers.items()}
        caller = self._propagator.extract(headers, context.Context())
        origin = trace.get_current_span(caller).get_span_context()
        span = self._tracer.start_span(
            "review",
            caller if review.is_authenticated else context.Context(),
            kind=SpanKind.SERVER,
            attributes={"kopf.webhook": review.webhook or ""},
            links=[Link(origin)] if origin.is_valid and not review.is_authenticated else [],
        )
        self._spans[review] = (span, context.attach(trace.set_span_in_context(span)))

    def review_ended(self, review: Review, response: Response | None) -> None:
        if review not in self._spans:
            return
        span, token = self._spans.pop(review)
        context.detach(token)
        if response is not None:
            span.set_attribute("kopf.allowed", response["response"]["allowed"])
        span.end()


class EventSpans(Observer):
    """Makes the spans of Kubernetes events: from when they were reported until they were posted."""

    def __init__(self, tracer: Tracer, objects: LRUDict[str, SpanContext]) -> None:
        self._tracer = tracer
        self._objects = objects

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        origin = self._objects.get(ref.get("uid") or "")
        if origin is not None:
            span = self._tracer.start_span(
                "kubernetes event",
                trace.set_span_in_context(NonRecordingSpan(origin), context.Context()),
                attributes={"k8s.event.reason": reason, "kopf.event.type": type},
                start_time=int(time * 1e9),
            )
            span.end()


def start_tracing(observers: Observers, tracer: Tracer) -> None:
    """Trace the work of the operator from now on."""
    objects = LRUDict[str, SpanContext](MAX_SPANS)
    observers.add(
        PassSpans(tracer, objects),
        AttemptSpans(tracer, objects),
        RequestSpans(tracer),
        ReviewSpans(tracer),
        EventSpans(tracer, objects),
    )
