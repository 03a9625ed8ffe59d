"""What an operator tells of its work, in the order in which it happens, and with what is needed to make sense of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from kopf._client.http import request_facts
from kopf._client.http.request_facts import RequestBegun, RequestEnded, RequestRetried
from kopf._client.resources import watch_facts
from kopf._client.resources.watch_facts import ObjectPatched, WatchInterrupted
from kopf._controller import controller_facts
from kopf._controller.changes import look_facts
from kopf._controller.changes.look_facts import LookDecided, LookEnded
from kopf._controller.controller_facts import ObjectObserved, ObjectQueued, PauseChanged, WorkBegun, WorkEnded
from kopf._events import event_facts
from kopf._events.event_facts import EventDropped, EventPosted
from kopf._facts.bus import Fact
from kopf._handlers import attempt_facts
from kopf._handlers.attempt_facts import AttemptBegun, AttemptEnded
from kopf._handlers.causes import ActivityCause
from kopf._values.reasons import Reason
from kopf.testing import Simulation
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)

KINDS = [
    kind
    for module in (request_facts, watch_facts, controller_facts, look_facts, event_facts, attempt_facts)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, Fact) and kind is not Fact and kind.__module__ == module.__name__
]


@pytest.fixture(autouse=True)
def registry() -> Iterator[kopf.OperatorRegistry]:
    previous, registry = kopf.get_default_registry(), kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(previous)


class Facts(list[Any]):
    """All that was told."""

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Those of the types, but for the logins: these have handlers, too."""
        return [fact for fact in self if isinstance(fact, kinds) and not self._is_of_login(fact)]

    @staticmethod
    def _is_of_login(fact: Any) -> bool:
        begun = fact.begun if isinstance(fact, AttemptEnded) else fact
        return isinstance(begun, AttemptBegun) and isinstance(begun.cause, ActivityCause)


@pytest.fixture
def facts(simulation: Simulation) -> Facts:
    facts = Facts()
    assert simulation._birth is not None
    for kind in KINDS:
        simulation._birth.bus.subscribe(kind, facts.append)
    return facts


async def test_way_of_an_object(simulation: Simulation, facts: Facts) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> dict[str, str]:
        return {"done": "yes"}

    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.settle()
    told = facts.of(
        ObjectObserved, ObjectQueued, WorkBegun, LookDecided, AttemptBegun, AttemptEnded, ObjectPatched, WorkEnded
    )
    echoes = facts.of(ObjectObserved)[1:]
    assert [fact.type for fact in facts.of(ObjectObserved)] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert [type(fact).__name__ for fact in told if fact not in echoes] == [
        "ObjectObserved", "ObjectQueued", "WorkBegun", "LookDecided", "AttemptBegun", "AttemptEnded",
        "ObjectPatched", "ObjectPatched", "WorkEnded",
    ]
    decided = facts.of(LookDecided)[0]
    assert decided.plan.reason is Reason.CREATE
    assert [handler.fn for handler in decided.plan.call] == [create_fn]
    patched = next(fact for fact in facts.of(ObjectPatched) if fact.subresource == "status")
    assert not patched.is_noop
    assert list(patched.changes["status"].values()) == [{"done": "yes"}]
    ended = facts.of(LookEnded)[0]
    assert (ended.error, ended.delay) == (None, None)
    assert ended.obj.head.resourceVersion == facts.of(ObjectPatched)[-1].after.head.resourceVersion
    begun = {fact for fact in facts.of(RequestBegun) if not fact.is_stream}
    assert begun == {fact.request for fact in facts.of(RequestEnded)}
    assert {fact.status for fact in facts.of(RequestEnded)} <= {200, 201, 404}  # 404 is of the peering


async def test_failures_and_retries(simulation: Simulation, facts: Facts) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("not yet", delay=10)

    await simulation.restart()
    await simulation.settle()
    simulation.faults.fail("PATCH", "kopfexamples", status=503, times=1)
    await simulation.apply(make("obj"))
    await simulation.advance(seconds=30)
    retried = facts.of(RequestRetried)[0]
    assert "503" in str(retried.error)
    assert retried.delay > 0
    first, second = facts.of(AttemptEnded)
    assert (first.outcome.final, first.outcome.delay, first.begun.attempt.retry) == (False, 10, 0)
    assert (second.outcome.final, second.begun.attempt.retry) == (True, 1)
    statuses = [fact.status for fact in facts.of(RequestEnded) if fact.request.method == "PATCH"]
    assert statuses[0] == 503


async def test_cancelled_attempts(simulation: Simulation, facts: Facts) -> None:
    @kopf.daemon("kopfexamples", cancellation_timeout=1)
    async def daemon_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.settle()
    await simulation.stop()
    assert [fact.outcome for fact in facts.of(AttemptEnded)] == [None]


async def test_refused_objects(simulation: Simulation, facts: Facts) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["bad label!"] = "x"

    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.advance(seconds=3)
    ended = facts.of(LookEnded)[0]
    assert "422" in str(ended.error) or "Invalid" in str(ended.error)
    assert ended.delay


async def test_interrupted_streams(simulation: Simulation, facts: Facts) -> None:
    @kopf.on.event("kopfexamples")
    async def event_fn(**_: Any) -> None:
        pass

    await simulation.restart()
    await simulation.settle()
    simulation.faults.drop_watch()
    await simulation.advance(seconds=30)
    assert "kopfexamples" in {fact.target.resource.plural for fact in facts.of(WatchInterrupted)}


async def test_pauses_and_events(simulation: Simulation, facts: Facts) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        kopf.info(body, reason="Hello", message="world")

    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.settle()
    assert ("Hello", "world") in {(fact.report.reason, fact.report.message) for fact in facts.of(EventPosted)}
    assert not facts.of(EventDropped)
    assert facts.of(PauseChanged)[-1].reasons == ()  # it has waited to know of its peers
