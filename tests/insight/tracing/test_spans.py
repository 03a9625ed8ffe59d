"""The parts of the traces: names without objects, bounded memory, traces that are begun by others."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanContext, format_trace_id

from kopf._controller.observer import Observers, Review
from kopf._insight.tracing.tracing import marking_logs, name_route, start_tracing
from tests.insight.tracing.collecting import Collected

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/apis/kopf.dev/v1/namespaces/ns/kopfexamples/name/status", "kopfexamples/status"),
        ("/apis/kopf.dev/v1/namespaces/ns/kopfexamples/name", "kopfexamples"),
        ("/apis/kopf.dev/v1/namespaces/ns/kopfexamples", "kopfexamples"),
        ("/apis/kopf.dev/v1/kopfexamples/name", "kopfexamples"),
        ("/api/v1/namespaces/ns/events", "events"),
        ("/api/v1/namespaces/ns", "namespaces"),
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1", ""),
        ("/version", ""),
        ("", ""),
    ],
)
def test_names_of_requests(path: str, name: str) -> None:
    assert name_route(path) == name


@pytest.fixture
def observers() -> Observers:
    return Observers()


@pytest.fixture
def collected(observers: Observers) -> Collected:
    collected = Collected()
    start_tracing(observers, collected.provider.get_tracer("test"))
    return collected


def _review(observers: Observers, header: str, flags: str, *, is_authenticated: bool) -> SpanContext:
    headers = {header: f"00-{TRACE_ID}-00f067aa0ba902b7-{flags}"}
    review = Review("check", headers, is_authenticated, 0.0)
    observers.review_begun(review)
    inner = trace.get_current_span().get_span_context()
    response: Any = {"response": {"allowed": False}}
    observers.review_ended(review, response)
    assert not trace.get_current_span().get_span_context().is_valid
    return inner


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
def test_reviews_continue_the_traces_of_the_server(observers: Observers, collected: Collected, name: str) -> None:
    inner = _review(observers, name, "01", is_authenticated=True)
    span = collected.get("review", kopf__webhook="check", kopf__allowed=False)
    assert span.context == inner
    assert format_trace_id(span.context.trace_id) == TRACE_ID
    assert not span.links


@pytest.mark.parametrize("flags", ["00", "01"])
def test_reviews_of_anybody_are_only_linked(observers: Observers, collected: Collected, flags: str) -> None:
    inner = _review(observers, "traceparent", flags, is_authenticated=False)
    span = collected.get("review", kopf__webhook="check", kopf__allowed=False)
    assert span.context == inner
    assert span.parent is None
    assert [format_trace_id(link.context.trace_id) for link in span.links] == [TRACE_ID]
    assert format_trace_id(span.context.trace_id) != TRACE_ID


def test_reviews_with_malformed_traces_have_no_links(observers: Observers, collected: Collected) -> None:
    _review(observers, "traceparent", "zz", is_authenticated=False)
    assert not collected.get("review").links


def test_requests_of_nothing_are_not_traced(observers: Observers, collected: Collected) -> None:
    headers = observers.request_begun("GET", "/api/v1/pods?x=y", "https://server:6443", {})
    observers.request_ended("GET", "https://server:6443", 200, None, 0.0, headers)
    assert collected.spans == []
    assert headers == {}


def test_queries_are_not_shown(observers: Observers, collected: Collected) -> None:
    with collected.provider.get_tracer("user").start_as_current_span("of the user"):
        headers = observers.request_begun("GET", "/api/v1/pods?fieldSelector=x", "https://server:6443", {})
        observers.request_ended("GET", "https://server:6443", None, TimeoutError(), 0.0, headers)
    span = collected.get("GET pods", url__path="/api/v1/pods", server__port=6443, error__type="TimeoutError")
    assert "fieldSelector" not in span.to_json()


def test_records_are_marked_only_while_it_is_wanted(collected: Collected) -> None:
    def make() -> logging.LogRecord:
        return logging.getLogRecordFactory()("name", logging.INFO, "", 0, "text", (), None)

    before = logging.getLogRecordFactory()
    with collected.provider.get_tracer("user").start_as_current_span("of the user"):
        with marking_logs():
            with marking_logs():
                pass
            assert hasattr(make(), "trace_id")
        assert not hasattr(make(), "trace_id")
    with marking_logs():
        assert not hasattr(make(), "trace_id")
    assert logging.getLogRecordFactory() is before
