"""The spans of reviews, which belong to the traces of the API server, and of the posted Kubernetes events."""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kopf._controller.observer import Observer, Review
from kopf._insight.tracing.recent_spans import TraceMemory
from kopf._values.references import ObjectReference
from kopf._values.reviews import Response


class ReviewSpans(Observer):
    """
    Makes the spans of reviews: each is the current one until the review is answered.

    They continue the traces of those callers who are known by their certificates. Others could put them into any
    trace, and decide that they are sampled: those traces are only linked.
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

    def __init__(self, tracer: Tracer, memory: TraceMemory) -> None:
        self._tracer = tracer
        self._memory = memory

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        origin = self._memory.objects.recall(ref.get("uid") or "")
        if origin is not None:
            span = self._tracer.start_span(
                "kubernetes event",
                trace.set_span_in_context(NonRecordingSpan(origin), context.Context()),
                attributes={"k8s.event.reason": reason, "kopf.event.type": type},
                start_time=int(time * 1e9),
            )
            span.end()
