"""
The spans of requests to the API, with the W3C header by which the API server continues the trace.

Only those in the middle of something are traced: listings and keep-alives belong to no object.
"""

from __future__ import annotations

import urllib.parse

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kopf._client.client_observer import Headers
from kopf._controller.observer import Observer

_TRACE_HEADER = "traceparent"


class RequestSpans(Observer):
    """Makes the spans of requests."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._spans: dict[str, Span] = {}
        """By the header that was sent: it names the span."""

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
    """Tell what is requested without names of objects: ``kopfexamples/status``; nothing if it is no resource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join([*rest[:1], *rest[2:]])
