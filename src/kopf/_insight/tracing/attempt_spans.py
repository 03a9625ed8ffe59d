"""The spans of attempts: each is the current one for the code of its handler, in its thread if it has one."""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer

from kopf._controller.observer import Observer
from kopf._handlers.attempt_names import name_outcome, name_reason
from kopf._handlers.causes import Cause, ResourceCause, WebhookCause
from kopf._handlers.handler_errors import TemporaryError
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._insight.tracing.look_spans import Attributes, describe_object
from kopf._insight.tracing.recent_spans import TraceMemory


class AttemptSpans(Observer):
    """Makes the spans of attempts; those of nothing else (timers, daemons, raw events) are traces of their own."""

    def __init__(self, tracer: Tracer, memory: TraceMemory) -> None:
        self._tracer = tracer
        self._memory = memory
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
        previous = self._memory.attempts.recall((key, handler.id)) if attempt.retry else None
        links = [] if previous is None else [Link(previous, {"kopf.link": "previous attempt"})]
        span = self._tracer.start_span(f"handler {handler.id}", attributes=attributes, links=links)
        if not isinstance(cause, WebhookCause):
            self._memory.objects.note(key, span.get_span_context())
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
            # Not their texts: these can have anything in them. They are in the logs, which know of the span.
            span.set_attribute("error.type", type(error).__name__)
            if (outcome is not None and outcome.final) or not isinstance(error, TemporaryError):
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        if isinstance(cause, ResourceCause) and not isinstance(cause, WebhookCause):
            key = (cause.body.object.head.key, handler.id)
            if outcome is not None and not outcome.final:
                self._memory.attempts.note(key, span.get_span_context())
            else:
                self._memory.attempts.forget(key)
        span.end()
