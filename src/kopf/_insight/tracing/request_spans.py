"""
The spans of requests to the API, with the W3C header by which the API server continues the trace.

Only those in the middle of something are traced: listings, streams, and keep-alives belong to no object.
"""

from __future__ import annotations

import urllib.parse

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kopf._client.http.request_facts import RequestBegun, RequestEnded
from kopf._facts.bus import Bus


class RequestSpans:
    """Makes the spans of requests."""

    def __init__(self, bus: Bus, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._spans: dict[RequestBegun, Span] = {}
        bus.subscribe(RequestBegun, self._on_begin)
        bus.subscribe(RequestEnded, self._on_end)

    def _on_begin(self, fact: RequestBegun) -> None:
        if fact.is_stream or not trace.get_current_span().get_span_context().is_valid:
            return
        path = fact.path.partition("?")[0]
        server = urllib.parse.urlsplit(fact.server)
        span = self._tracer.start_span(
            f"{fact.method} {name_route(path)}".strip(),
            kind=SpanKind.CLIENT,
            attributes={
                "http.request.method": fact.method,
                "url.path": path,
                "server.address": server.hostname or "",
                **({} if server.port is None else {"server.port": server.port}),
            },
        )
        self._propagator.inject(fact.headers, trace.set_span_in_context(span))
        self._spans[fact] = span

    def _on_end(self, fact: RequestEnded) -> None:
        span = self._spans.pop(fact.request, None)
        if span is None:
            return
        problem = "" if fact.error is None else type(fact.error).__name__
        if fact.status is not None:
            span.set_attribute("http.response.status_code", fact.status)
            problem = str(fact.status) if fact.status >= 400 else problem
        if problem:
            span.set_attribute("error.type", problem)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def name_route(path: str) -> str:
    """Tell what is requested without names of objects: ``kopfexamples/status``; nothing if it is no resource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join([*rest[:1], *rest[2:]])
