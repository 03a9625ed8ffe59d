"""The spans of reviews, which belong to the traces of the API server, and of the posted Kubernetes events."""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kopf._admission.review_facts import ReviewBegun, ReviewEnded
from kopf._events.event_facts import EventPosted
from kopf._facts.bus import Bus
from kopf._insight.tracing.recent_spans import TraceMemory


class ReviewSpans:
    """
    Makes the spans of reviews: each is the current one until the review is answered.

    They continue the traces of those callers who are known by their certificates. Others could put them into any
    trace, and decide that they are sampled: those traces are only linked.
    """

    def __init__(self, bus: Bus, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._spans: dict[ReviewBegun, tuple[Span, Token[context.Context]]] = {}
        bus.subscribe(ReviewBegun, self._on_begin)
        bus.subscribe(ReviewEnded, self._on_end)

    def _on_begin(self, fact: ReviewBegun) -> None:
        headers = {name.lower(): value for name, value in fact.headers.items()}
        caller = self._propagator.extract(headers, context.Context())
        origin = trace.get_current_span(caller).get_span_context()
        span = self._tracer.start_span(
            "review",
            caller if fact.is_authenticated else context.Context(),
            kind=SpanKind.SERVER,
            attributes={"kopf.webhook": fact.webhook or ""},
            links=[Link(origin)] if origin.is_valid and not fact.is_authenticated else [],
        )
        self._spans[fact] = (span, context.attach(trace.set_span_in_context(span)))

    def _on_end(self, fact: ReviewEnded) -> None:
        if fact.begun not in self._spans:
            return
        span, token = self._spans.pop(fact.begun)
        context.detach(token)
        if fact.response is not None:
            span.set_attribute("kopf.allowed", fact.response["response"]["allowed"])
        span.end()


class EventSpans:
    """Makes the spans of Kubernetes events: from when they were reported until they were posted."""

    def __init__(self, bus: Bus, tracer: Tracer, memory: TraceMemory) -> None:
        self._tracer = tracer
        self._memory = memory
        bus.subscribe(EventPosted, self._on_posted)

    def _on_posted(self, fact: EventPosted) -> None:
        report = fact.report
        origin = self._memory.objects.recall(report.ref.get("uid") or "")
        if origin is not None:
            span = self._tracer.start_span(
                "kubernetes event",
                trace.set_span_in_context(NonRecordingSpan(origin), context.Context()),
                attributes={"k8s.event.reason": report.reason, "kopf.event.type": report.type},
                start_time=int(report.time.timestamp() * 1e9),
            )
            span.end()
