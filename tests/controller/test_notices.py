"""What an operator tells of its work, in the order in which it happens, and with what is needed to make sense of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf._client.client_observer import is_same
from kopf._values.reasons import Reason
from kopf.testing import Simulation
from tests.observing import Notices
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


@pytest.fixture
def notices(simulation: Simulation) -> Notices:
    notices = Notices()
    assert simulation._birth is not None
    simulation._birth.observers.add(notices)
    return notices


async def handle(simulation: Simulation) -> None:
    """Let the operator handle an object that comes when it runs already."""
    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.settle()


async def test_way_of_an_object(simulation: Simulation, notices: Notices) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> dict[str, str]:
        return {"done": "yes"}

    await handle(simulation)
    told = notices.of(
        "object_seen", "object_queued", "work_begun", "pass_begun", "pass_decided", "attempt_begun", "attempt_ended",
        "object_patched", "pass_ended", "work_ended",
    )  # fmt: skip
    seen = notices.of("object_seen")
    assert [item.type for item in seen] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert [item.name for item in told if item not in seen[1:]] == [
        "object_seen", "object_queued", "work_begun", "pass_begun", "pass_decided", "attempt_begun", "attempt_ended",
        "object_patched", "object_patched", "pass_ended", "work_ended",
    ]  # fmt: skip
    [decided] = notices.of("pass_decided")
    assert decided.plan.reason is Reason.CREATE
    assert [handler.fn for handler in decided.plan.call] == [create_fn]
    [patched] = [item for item in notices.of("object_patched") if item.subresource == "status"]
    assert not is_same(patched.before.head, patched.after.head)
    assert list(patched.changes["status"].values()) == [{"done": "yes"}]
    [ended] = notices.of("pass_ended")
    assert (ended.error, ended.delay) == (None, None)
    assert ended.obj.head.resourceVersion == notices.of("object_patched")[-1].after.head.resourceVersion
    begun, ended_requests = notices.of("request_begun"), notices.of("request_ended")
    assert len(begun) == len(ended_requests)
    assert {item.status for item in ended_requests} <= {200, 201, 404}  # 404 is of the peering


async def test_failures_and_retries(simulation: Simulation, notices: Notices) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("not yet", delay=10)

    await simulation.restart()
    await simulation.settle()
    simulation.faults.fail("PATCH", "kopfexamples", status=503, times=1)
    await simulation.apply(make("obj"))
    await simulation.advance(seconds=30)
    retried = notices.of("request_retried")[0]
    assert "503" in str(retried.error)
    assert retried.delay > 0
    begun = notices.of("attempt_begun")
    first, second = notices.of("attempt_ended")
    assert (first.outcome.final, first.outcome.delay, begun[0].attempt.retry) == (False, 10, 0)
    assert (second.outcome.final, begun[1].attempt.retry) == (True, 1)
    statuses = [item.status for item in notices.of("request_ended") if item.method == "PATCH"]
    assert statuses[0] == 503


async def test_cancelled_attempts(simulation: Simulation, notices: Notices) -> None:
    @kopf.daemon("kopfexamples", cancellation_timeout=1)
    async def daemon_fn(**_: Any) -> None:
        await asyncio.Event().wait()

    await handle(simulation)
    await simulation.stop()
    assert [item.outcome for item in notices.of("attempt_ended")] == [None]


async def test_refused_objects(simulation: Simulation, notices: Notices) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["bad label!"] = "x"

    await simulation.restart()
    await simulation.settle()
    await simulation.apply(make("obj"))
    await simulation.advance(seconds=3)
    ended = notices.of("pass_ended")[0]
    assert "422" in str(ended.error) or "Invalid" in str(ended.error)
    assert ended.delay


async def test_interrupted_streams(simulation: Simulation, notices: Notices) -> None:
    @kopf.on.event("kopfexamples")
    async def event_fn(**_: Any) -> None:
        pass

    await simulation.restart()
    await simulation.settle()
    simulation.faults.drop_watch()
    await simulation.advance(seconds=30)
    assert "kopfexamples" in {item.target.resource.plural for item in notices.of("watch_interrupted")}


async def test_pauses_and_events(simulation: Simulation, notices: Notices) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        kopf.info(body, reason="Hello", message="world")

    await handle(simulation)
    assert ("Hello", "world") in {(item.reason, item.message) for item in notices.of("event_posted")}
    assert not notices.of("event_dropped")
    assert notices.of("pause_changed")[-1].pause.reasons == ()  # it has waited to know of its peers
