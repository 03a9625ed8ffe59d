"""The traces of an operator: what is in them, what is linked to what, and what is never there."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace

import kopf
from kopf._insight.tracing.tracing import marking_logs, start_tracing
from kopf.testing import Simulation
from tests.behaviour.running import do_nothing
from tests.insight.simulated import apply, begin, get_observers
from tests.insight.tracing.collecting import Collected, get_traceparent
from tests.observing import Notices
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

RECONCILE = "reconcile kopfexamples.kopf.dev"


@pytest.fixture
def traced(registry: object, simulation: Simulation) -> Collected:
    collected = Collected()
    start_tracing(get_observers(simulation), collected.provider.get_tracer("test"))
    return collected


@pytest.fixture
def requests(traced: Collected, simulation: Simulation) -> Notices:
    """The requests with their headers as they are sent."""
    notices = Notices()
    get_observers(simulation).add(notices)
    return notices


async def test_one_trace_for_a_change(
    simulation: Simulation,
    traced: Collected,
    requests: Notices,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(body: kopf.Body, **_: Any) -> dict[str, str]:
        kopf.info(body, reason="Hello", message="world")
        return {"done": "yes"}

    await begin(simulation, make("obj", size=1))
    root = traced.get(RECONCILE)
    assert root.parent is None
    attributes = dict(root.attributes or {})
    assert attributes.pop("k8s.object.uid")
    assert attributes.pop("k8s.object.resource_version")
    assert attributes == {
        "k8s.object.api_version": "kopf.dev/v1",
        "k8s.object.kind": "KopfExample",
        "k8s.object.name": "obj",
        "k8s.namespace.name": "default",
        "kopf.reason": "create",
    }
    names = ["queue", "handler create_fn", "PATCH kopfexamples", "PATCH kopfexamples/status"]
    assert sorted(traced.list_children(root)) == sorted(names)
    attempt = traced.get("handler create_fn", kopf__outcome="succeeded", kopf__retry=0, kopf__reason="create")
    assert "kubernetes event" in traced.list_children(attempt)
    assert len(traced.find("kubernetes event", k8s__event__reason="Hello")) == 1
    queue = traced.get("queue")
    assert root.start_time == queue.start_time
    assert queue.end_time <= attempt.start_time <= attempt.end_time <= root.end_time  # type: ignore[operator]
    patch = traced.get("PATCH kopfexamples/status", http__response__status_code=200)
    sent = next(item for item in requests.of("request_begun") if item.target.endswith("/obj/status"))
    assert sent.headers["traceparent"] == get_traceparent(patch)
    assert not traced.find("GET")


async def test_fields_of_updates_without_their_values(simulation: Simulation, traced: Collected) -> None:
    @kopf.on.update("kopfexamples", id="update_fn")
    async def update_fn(**_: Any) -> None:
        raise kopf.PermanentError("the password is secret-new")

    await begin(simulation, make("obj", password="secret-old", size=1))
    await apply(simulation, make("obj", password="secret-new", size=1))
    root = traced.get(RECONCILE, kopf__reason="update")
    assert (root.attributes or {})["kopf.diff.fields"] == ("spec.password",)
    attempt = traced.get("handler update_fn", error__type="PermanentError")
    assert attempt.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in "".join(span.to_json() for span in traced.spans)


async def test_nothing_to_do_is_not_traced(simulation: Simulation, traced: Collected) -> None:
    kopf.on.update("kopfexamples")(do_nothing)

    @kopf.index("kopfexamples")
    async def index_fn(**_: Any) -> int:
        return 1

    await begin(simulation, make("obj"))
    before = len(traced.spans)
    await begin(simulation)
    assert traced.spans[before:] == []


async def test_retries_are_linked(simulation: Simulation, traced: Collected) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(retry: int, **_: Any) -> None:
        if retry < 2:
            raise kopf.TemporaryError("not yet", delay=10)

    await begin(simulation, make("obj"), seconds=60)
    attempts = traced.find("handler create_fn")
    assert [dict(span.attributes or {})["kopf.outcome"] for span in attempts] == ["retried", "retried", "succeeded"]
    assert [span.status.status_code for span in attempts] == [trace.StatusCode.UNSET] * 3
    assert len({span.context.trace_id for span in attempts}) == 3
    assert not attempts[0].links
    for previous, attempt in itertools.pairwise(attempts):
        assert [link.context.span_id for link in attempt.links] == [previous.context.span_id]


async def test_children_are_linked_to_their_parents(simulation: Simulation, traced: Collected) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(body: kopf.Body, name: str, **_: Any) -> None:
        if name == "parent":
            children.append(make("child"))
            kopf.adopt(children[0], owner=body)

    children: list[dict[str, Any]] = []
    await begin(simulation, make("parent"))
    await apply(simulation, children[0])
    parent, child = (traced.get(RECONCILE, k8s__object__name=name) for name in ("parent", "child"))
    attempts = traced.find("handler create_fn")
    attempt = next(span for span in attempts if span.context.trace_id == parent.context.trace_id)
    assert [link.context.span_id for link in child.links] == [attempt.context.span_id]
    assert not parent.links


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_spans_of_users_and_logs_are_inside_of_the_attempt(
    simulation: Simulation,
    traced: Collected,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracer = traced.provider.get_tracer("user")
    logger = logging.getLogger("user")
    main = threading.get_ident()
    threads = []

    def work() -> None:
        threads.append(threading.get_ident() == main)
        with tracer.start_as_current_span("of the user"):
            logger.warning("It works.")

    if kind == "async":

        @kopf.on.create("kopfexamples", id="create_fn")
        async def create_fn(**_: Any) -> None:
            await asyncio.sleep(0)
            work()
    else:

        @kopf.on.create("kopfexamples", id="create_fn")
        def create_sync_fn(**_: Any) -> None:
            work()

    with marking_logs():
        await begin(simulation, make("obj"))
    attempt, span = traced.get("handler create_fn"), traced.get("of the user")
    assert threads == [kind == "async"]
    assert "of the user" in traced.list_children(attempt)
    record = next(record for record in caplog.records if record.getMessage() == "It works.")
    assert record.trace_id == trace.format_trace_id(attempt.context.trace_id)  # type: ignore[attr-defined]
    assert record.span_id == trace.format_span_id(span.context.span_id)  # type: ignore[attr-defined]
    success = next(record for record in caplog.records if "'create_fn' succeeded" in record.getMessage())
    assert success.span_id == trace.format_span_id(attempt.context.span_id)  # type: ignore[attr-defined]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_what_comes_after_a_look_does_not_belong_to_it(simulation: Simulation, traced: Collected) -> None:
    """Although it is the same worker that does it."""

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        await asyncio.sleep(10)

    kopf.on.event("kopfexamples", id="event_fn")(do_nothing)

    await begin(simulation, make("obj", size=1), seconds=5)
    await apply(simulation, make("obj", size=2), seconds=30)
    events = traced.find("handler event_fn")
    assert len(events) >= 3
    assert [span.parent for span in events] == [None] * len(events)


async def test_timers_and_daemons_are_traces_of_their_own(simulation: Simulation, traced: Collected) -> None:
    @kopf.timer("kopfexamples", id="timer_fn", interval=10)
    async def timer_fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        patch.status["ticks"] = "many"

    @kopf.daemon("kopfexamples", id="daemon_fn", cancellation_timeout=1)
    async def daemon_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    await begin(simulation, make("obj"), seconds=25)
    await simulation.stop()
    timers = traced.find("handler timer_fn", kopf__reason="timer", k8s__object__name="obj")
    assert len(timers) == 3
    assert {span.parent for span in timers} == {None}
    daemon = traced.get("handler daemon_fn", kopf__outcome="cancelled")
    assert daemon.parent is None


async def test_failed_requests(simulation: Simulation, traced: Collected) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["bad label!"] = "x"

    await begin(simulation)
    simulation.faults.fail("PATCH", "kopfexamples", status=503, times=1)
    await apply(simulation, make("obj"), seconds=3)
    failed = traced.find("PATCH kopfexamples", error__type="503")
    assert failed[0].status.status_code is trace.StatusCode.ERROR
    refused = traced.find("PATCH kopfexamples", error__type="422")
    assert refused
    roots = traced.find(RECONCILE)
    assert roots[0].status.status_code is trace.StatusCode.ERROR


@pytest.fixture(autouse=True)
def _factory_is_restored() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    assert logging.getLogRecordFactory() is before
