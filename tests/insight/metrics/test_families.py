"""The families: what is counted, is read as it is at one moment, and of several operators together."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import math
import threading
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

import kopf
from kopf._admission.servers.identities import READS
from kopf._admission.servers.tls_setup import TLSSetup
from kopf._client.errors import APINetworkError, APISilenceError, make_error
from kopf._client.resources.targets import Target
from kopf._controller.observer import ControllerView, Observers, Review
from kopf._controller.work_queue import WorkQueue
from kopf._handlers.handlers import Handler
from kopf._handlers.registry import HandlersOfResource
from kopf._health.watchdog import LoopLag
from kopf._insight.metrics.collector import get_collector
from kopf._insight.metrics.families import BATCH, Counter, Distribution, Gauge, Histogram, merge
from kopf._insight.metrics.handling import HandlerNames
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._insight.metrics.requesting import name_cause
from kopf._values.ids import HandlerId
from kopf._values.resources import Resource
from tests.insight.metrics.exposed import Exposed

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", kind="KopfExample")


def test_buckets() -> None:
    histogram = Histogram("x", "X.", ("label",), (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        histogram.observe(value, "a")
    snapshot = histogram.read()
    assert snapshot.distributions["a",] == Distribution([2, 1, 1], 102.0)
    assert merge(snapshot, snapshot).distributions["a",] == Distribution([4, 2, 2], 204.0)


@pytest.mark.parametrize(("kind", "expected"), [("sum", 5), ("max", 3)])
def test_several_values_of_one_operator(kind: Literal["sum", "max"], expected: float) -> None:
    """E.g. an index and another handler with the same id have failed for different objects."""
    gauge = Gauge("x", "X.", ("a",), lambda: [(("1",), 2), (("1",), 3)], kind=kind)
    assert gauge.read().values == {("1",): expected}


def test_several_operators() -> None:
    counter = Counter("x", "X.")
    counter.add()
    assert merge(counter.read(), counter.read()).values == {(): 2}
    total = Gauge("x", "X.", ("a",), lambda: [(("1",), 2)])
    assert merge(total.read(), total.read()).values == {("1",): 4}
    worst = Gauge("x", "X.", ("a",), lambda: [(("1",), 2), (("2",), -1)], kind="max")
    assert merge(worst.read(), Gauge("x", "X.", ("a",), lambda: [(("1",), 1)], kind="max").read()).values == {
        ("1",): 2,
        ("2",): -1,
    }


def test_what_is_read_is_consistent_while_it_changes() -> None:
    """The sum belongs to the count, whoever reads them meanwhile, and nothing is lost."""
    observers, times = Observers(), itertools.count()
    metrics = Metrics(observers, kopf.OperatorRegistry(), kopf.OperatorSettings(), clock=lambda: float(next(times)))
    is_over = threading.Event()

    def write() -> int:
        count = 0
        while not is_over.is_set():
            review = Review("check", {}, False, observers.clock())
            observers.review_begun(review)
            observers.review_ended(review, None)
            count += 1
        return count

    def read() -> tuple[float, float]:
        snapshots = {snapshot.name: snapshot for snapshot in metrics.read()}
        latencies = snapshots["controller_runtime_webhook_latency_seconds"].distributions
        reviews = snapshots["controller_runtime_webhook_requests"].values
        read = latencies.get(("/check",), Distribution([], 0.0))
        assert read.total == sum(read.counts)
        return read.total, reviews.get(("/check", "500"), 0)

    with concurrent.futures.ThreadPoolExecutor() as executor:
        writing = executor.submit(write)
        try:
            while read()[0] < 3000:
                pass
        finally:
            is_over.set()
        written = writing.result()
        assert read() == (written, written)


def make_view() -> ControllerView:
    queue = WorkQueue[str](has_room=lambda *_: True, on_due=lambda *_: None, call_at=lambda *_: None)  # type: ignore[arg-type]
    return ControllerView(RESOURCE, HandlersOfResource.build([]), queue, lambda: 0, {}, lambda: 50, lambda: (), None)


def test_what_is_put_aside_is_bounded() -> None:
    """Even if nobody scrapes, and a worker is never done with an object, as that changes all the time."""
    observers, view = Observers(), make_view()
    metrics = Metrics(observers, kopf.OperatorRegistry(), kopf.OperatorSettings())
    observers.controller_started(view)
    [flow] = metrics._groups[0]._flows.values()
    for _ in range(2 * BATCH):
        observers.pass_ended(RESOURCE, "key", None, None, None, 0.1)
        assert len(flow.passes) < BATCH
    for _ in range(2 * BATCH):
        observers.object_queued(RESOURCE, "key")
        observers.work_begun(RESOURCE, "key")
        observers.work_ended(RESOURCE, "key")
        assert max(len(flow.waits), len(flow.works)) < BATCH
    observers.controller_stopped(view)
    snapshots = {snapshot.name: snapshot for snapshot in metrics.read()}
    for name in ("controller_runtime_reconcile_time_seconds", "workqueue_queue_duration_seconds"):
        [distribution] = snapshots[name].distributions.values()
        assert sum(distribution.counts) == 2 * BATCH


def test_ids_of_subhandlers_are_of_no_number() -> None:
    def make(id: str) -> Handler:
        return Handler(id=HandlerId(id), fn=lambda **_: None)

    names = HandlerNames([make("fn"), make("fn/spec.field")])
    known = ["fn", "fn/spec.field", "fn/sub", "fn/sub/sub", "fn/spec.field/sub", "other"]
    expected = ["fn", "fn/spec.field", "fn/*", "fn/*", "fn/spec.field/*", "*"]
    assert [names.get(HandlerId(id)) for id in known] == expected


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (410, "expired"),
        (403, "forbidden"),
        (503, "server"),
        (429, "refused"),
        (APINetworkError("x"), "network"),
        (ValueError("x"), "other"),
        (None, "closed"),
    ],
)
def test_causes_of_restarts(error: Exception | int | None, cause: str) -> None:
    if isinstance(error, int):
        error = make_error(status=error, method="GET", path="/", headers={}, body=b"")
    assert name_cause(error) == cause


@pytest.fixture
def collected() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observers(collected: CollectorRegistry) -> Observers:
    """What is told to them, is counted."""
    observers = Observers()
    metrics = Metrics(observers, kopf.OperatorRegistry(), kopf.OperatorSettings(), clock=lambda: 3.0)
    get_collector(collected).add(metrics)
    return observers


def test_quiet_streams_have_a_cause_of_their_own(observers: Observers, collected: CollectorRegistry) -> None:
    observers.watch_interrupted(Target(RESOURCE), "silence", APISilenceError("x"), 0.1)
    observers.watch_interrupted(Target(RESOURCE), "watching", APISilenceError("x"), 0.1)
    for cause in ("quiet", "network"):
        assert Exposed.of(collected).sum("kopf_watch_restarts_total", cause=cause) == 1


def test_reviews_and_dropped_events(observers: Observers, collected: CollectorRegistry) -> None:
    review = Review("check", {}, False, 0.0)
    observers.review_begun(review)
    assert Exposed.of(collected).sum("controller_runtime_webhook_requests_in_flight", webhook="/check") == 1
    observers.review_ended(review, None)
    observers.event_dropped("overflow")
    exposed = Exposed.of(collected)
    assert exposed.sum("controller_runtime_webhook_requests_in_flight") == 0
    assert exposed.sum("controller_runtime_webhook_requests_total", webhook="/check", code="500") == 1
    assert exposed.sum("controller_runtime_webhook_latency_seconds_sum", webhook="/check") == 3
    assert exposed.sum("kopf_events_dropped_total", cause="overflow") == 1
    assert exposed.sum("kopf_events_dropped_total", cause="limit") == 0


def test_requests_without_responses(observers: Observers, collected: CollectorRegistry) -> None:
    server = "https://user@host:6443/path"
    for error in (TimeoutError(), asyncio.CancelledError()):  # whoever has not waited, is not counted
        observers.request_ended("PATCH", server, None, error, 1.0, {})
    observers.stream_failed(server, TimeoutError())
    observers.stream_answered(server, 410)
    exposed = Exposed.of(collected)
    assert exposed.group("rest_client_requests_total", "code", "method", "host") == {
        ("<error>", "PATCH", "host:6443"): 1,
        ("<error>", "GET", "host:6443"): 1,
        ("410", "GET", "host:6443"): 1,
    }
    assert exposed.sum("rest_client_request_duration_seconds_sum", verb="PATCH") == 2


async def test_read_certificates() -> None:
    total, errors = READS.total, READS.errors
    await TLSSetup({}, None, insecure=True).examine()
    with pytest.raises(FileNotFoundError):
        await TLSSetup({"cafile": "/nonexistent"}, None, insecure=True).examine()
    assert (READS.total - total, READS.errors - errors) == (2, 1)


def test_worst_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    lag = LoopLag()
    lag.ask()
    now[0] = 2.0
    assert lag.get_worst() == 2  # it has not answered yet
    lag.answer()
    now[0] = 5.0
    assert lag.get_worst() == 2
    for minutes in (1, 2, 3):
        now[0] = minutes * 60.0
        lag.ask()
        lag.answer()
    assert math.isclose(lag.get_worst(), 0)
