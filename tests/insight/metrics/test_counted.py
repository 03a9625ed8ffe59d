"""What is counted is what has happened: under a mixed load, the metrics agree with the journal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import kopf
from kopf._insight.metrics.collector import get_collector
from kopf._insight.metrics.operator_metrics import Metrics
from kopf.testing import Simulation
from tests.behaviour.running import do_nothing
from tests.insight.metrics.exposed import DESIGNED, Exposed, count
from tests.insight.simulated import apply, begin, get_observers
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

KEX = "kopfexamples.kopf.dev"


class Scraper:
    """Measures an operator in a simulation, by its virtual time."""

    def __init__(self, simulation: Simulation, registry: kopf.OperatorRegistry) -> None:
        self._prometheus = CollectorRegistry()
        settings = kopf.OperatorSettings()
        self.observers = get_observers(simulation)
        clock = asyncio.get_running_loop().time
        get_collector(self._prometheus).add(Metrics(self.observers, registry, settings, clock=clock))

    def scrape(self) -> Exposed:
        return Exposed.of(self._prometheus)


def declare_everything() -> None:
    """Handlers of all kinds, those that fail included."""

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(spec: kopf.Spec, retry: int, **_: Any) -> dict[str, str]:
        await asyncio.sleep(0.2)
        match spec.get("mood"):
            case "unlucky" if retry < 2:
                raise kopf.TemporaryError("not yet", delay=5)
            case "broken" if not retry:
                raise ValueError("something is wrong")
            case "hopeless":
                raise kopf.PermanentError("never")
        return {"done": "yes"}

    @kopf.on.update("kopfexamples", id="update_fn")
    async def update_fn(body: kopf.Body, spec: kopf.Spec, **_: Any) -> None:
        @kopf.subhandler(id=f"item-{spec['size']}")
        async def item_fn(**_: Any) -> None:
            kopf.info(body, reason="Sized", message="as it should be")

    kopf.on.delete("kopfexamples", id="delete_fn")(do_nothing)

    kopf.on.event("kopfexamples", id="event_fn")(do_nothing)

    @kopf.index("kopfexamples", id="by_mood")
    async def by_mood(spec: kopf.Spec, name: str, **_: Any) -> dict[str, str]:
        return {spec.get("mood", "fine"): name}

    @kopf.daemon("kopfexamples", id="daemon_fn", cancellation_timeout=1)
    async def daemon_fn(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    kopf.timer("kopfexamples", id="timer_fn", interval=60)(do_nothing)


async def live(simulation: Simulation, size: int) -> None:
    """A mixed load; the scale is the number of objects."""
    await begin(simulation)
    for number in range(size):
        await simulation.apply(make(f"fine-{number}", size=0))
    await apply(simulation, *[make(mood, mood=mood) for mood in ("unlucky", "broken", "hopeless")], seconds=100)
    simulation.faults.fail("PATCH", "kopfexamples", status=503, times=1)
    for number in range(size):
        await simulation.apply(make(f"fine-{number}", size=number))
    simulation.faults.drop_watch()
    await simulation.advance(seconds=30)
    await simulation.delete("kopfexamples", "fine-0")
    await simulation.advance(seconds=5)


async def test_what_matters_only_after_failures_is_not_observed_before(
    simulation: Simulation,
    registry: kopf.OperatorRegistry,
) -> None:
    """Whoever has a method, is called for each object."""

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(name: str, **_: Any) -> dict[str, str]:
        if name == "bad":
            raise kopf.PermanentError("never")
        return {"done": "yes"}

    scraper = Scraper(simulation, registry)
    observers = scraper.observers
    await begin(simulation, make("obj"), seconds=5)
    assert scraper.scrape().sum("kopf_handler_duration_seconds_count", handler="create_fn") == 1
    assert scraper.scrape().sum("kopf_watch_lag_seconds_count") == 2  # of the status, and of the object
    assert "pass_decided" not in vars(observers)
    await apply(simulation, make("bad"), seconds=5)
    assert "pass_decided" in vars(observers)


async def test_metrics_agree_with_the_journal(simulation: Simulation, registry: kopf.OperatorRegistry) -> None:
    declare_everything()
    scraper = Scraper(simulation, registry)
    await live(simulation, 5)
    exposed = scraper.scrape()
    assert set(exposed.families) >= DESIGNED

    # Handlers: every call is counted, by its reason and outcome; those of daemons that run have not ended.
    calls = [call for call in simulation.journal.get_calls() if call.reason != "authentication"]
    expected = count((call.id.replace("/item-", "/*").rstrip("01234"), call.reason, call.outcome) for call in calls)
    counted = exposed.group("kopf_handler_duration_seconds_count", "handler", "reason", "outcome")
    assert {key: value for key, value in counted.items() if key[1] != "authentication"} == expected
    total = sum(call.duration for call in calls)
    assert exposed.sum("kopf_handler_duration_seconds_sum") == pytest.approx(total, rel=0.02)
    assert exposed.sum("kopf_handler_retries_total", handler="create_fn") == 3
    assert exposed.group("kopf_handlers_failed", "handler", "state") == {("create_fn", "failed"): 1}

    # Objects: 8 created, one of them deleted.
    assert exposed.sum("kopf_objects", resource=KEX) == 7
    assert exposed.sum("kopf_index_size", index="by_mood") == 4
    assert exposed.sum("kopf_daemons_running", handler="daemon_fn") == 7
    assert exposed.sum("kopf_timers_waiting", handler="timer_fn") == 7

    # Looks: one with an error of a handler, one that is terminal, two to be repeated as asked, one refused patch.
    results = exposed.group("controller_runtime_reconcile_total", "controller", "result")
    assert results[KEX, "error"] == 2
    assert results[KEX, "requeue_after"] >= 2
    assert exposed.sum("controller_runtime_reconcile_errors_total") == 2
    assert exposed.sum("controller_runtime_terminal_reconcile_errors_total") == 1
    assert exposed.sum("controller_runtime_reconcile_time_seconds_count") == sum(results.values())
    creations = [call for call in calls if call.id == "create_fn"]
    assert exposed.sum("controller_runtime_reconcile_time_seconds_sum") >= 0.2 * len(creations)
    assert exposed.sum("controller_runtime_max_concurrent_reconciles", controller=KEX) == 50
    assert exposed.sum("controller_runtime_active_workers", controller=KEX) == 0

    # The queue: all that was added, has been taken, and nothing is left.
    adds = exposed.sum("workqueue_adds_total", name=KEX, controller=KEX)
    assert adds >= 8 + 5 + 1
    assert exposed.sum("workqueue_queue_duration_seconds_count", name=KEX) == adds
    assert exposed.sum("workqueue_work_duration_seconds_count", name=KEX) == adds
    assert exposed.sum("workqueue_retries_total", name=KEX) >= 3
    for name in ("depth", "unfinished_work_seconds", "longest_running_processor_seconds"):
        assert exposed.sum(f"workqueue_{name}", name=KEX) == 0

    # Requests & writes.
    writes = [write for write in simulation.journal.get_writes("operator") if write.resource == KEX]
    assert exposed.sum("kopf_own_writes_total", resource=KEX, effect="changed") == len(writes)
    requests = exposed.group("rest_client_requests_total", "code", "method")
    assert requests["503", "PATCH"] == exposed.sum("rest_client_request_retries_total", code="503", verb="PATCH") == 1
    assert requests["200", "PATCH"] >= len(writes)
    durations = exposed.sum("rest_client_request_duration_seconds_count", verb="PATCH")
    assert durations == requests["200", "PATCH"] + 1
    assert exposed.sum("kopf_watch_restarts_total", resource=KEX) == 1
    assert 0 < exposed.sum("kopf_watch_lag_seconds_count", resource=KEX) <= len(writes)
    assert 0 <= exposed.sum("kopf_watch_last_activity_seconds", resource=KEX) < 70
    continued = requests["200", "PATCH"] - exposed.sum("kopf_own_writes_total")
    assert exposed.sum("kopf_events_posted_total") == requests["201", "POST"] + continued
    assert exposed.sum("leader_election_master_status", name="default") == 1


async def test_cardinality_does_not_grow_with_objects(
    simulation: Simulation,
    registry: kopf.OperatorRegistry,
) -> None:
    declare_everything()
    scraper = Scraper(simulation, registry)
    await live(simulation, 10)
    few = {(item.name, *sorted(item.labels.items())) for item in scraper.scrape().samples}
    await apply(simulation, *[make(f"more-{number}", size=number) for number in range(30)], seconds=100)
    await apply(simulation, *[make(f"more-{number}", size=1000 + number) for number in range(30)], seconds=30)
    exposed = scraper.scrape()
    assert exposed.sum("kopf_objects", resource=KEX) == 42
    assert {(item.name, *sorted(item.labels.items())) for item in exposed.samples} - few == set()


async def test_failures_are_over_when_something_else_becomes_of_the_objects(
    simulation: Simulation,
    registry: kopf.OperatorRegistry,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        raise kopf.PermanentError("never")

    @kopf.on.update("kopfexamples", id="update_fn", backoff=1000)
    async def update_fn(**_: Any) -> None:
        raise ValueError("not now")

    @kopf.index("kopfexamples", id="index_fn", errors=kopf.ErrorsMode.PERMANENT)
    async def index_fn(**_: Any) -> None:
        raise ValueError("not this one")

    scraper = Scraper(simulation, registry)

    def look() -> dict[tuple[str, ...], float]:
        return scraper.scrape().group("kopf_handlers_failed", "handler", "state")

    await begin(simulation, *[make(name, size=0) for name in ("a", "b")])
    assert look() == {("create_fn", "failed"): 2, ("index_fn", "failed"): 2}
    await apply(simulation, make("a", size=1))
    assert look() == {("create_fn", "failed"): 1, ("update_fn", "retrying"): 1, ("index_fn", "failed"): 2}
    for name in ("a", "b"):
        await simulation.delete("kopfexamples", name)
    await simulation.settle()
    assert look() == {}
