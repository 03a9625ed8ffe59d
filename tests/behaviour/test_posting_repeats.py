"""Kubernetes events that are reported too often: counted, combined, limited, or not permitted."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Obj, Objects, get_patience
from tests.behaviour.resources import create_in, define_namespaces
from tests.behaviour.running import Logs, Operator

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(autouse=True)
def _posting(operator: Operator) -> None:
    operator.set("posting.enabled", True)
    operator.set("posting.loggers", False)


@pytest.fixture
def post() -> list[str]:
    """What to post next for every change of an object."""
    messages: list[str] = []

    @kopf.on.event("kopfexamples")
    async def fn(body: kopf.Body, **_: Any) -> None:
        for message in messages:
            kopf.info(body, reason="Some", message=message)

    return messages


async def wait_for_event(api: API, condition: Callable[[list[Obj]], object]) -> list[Obj]:
    async with asyncio.timeout(get_patience()):
        while not condition(events := await api.list_events()):
            await asyncio.sleep(0.01)
    return events


def count_requests(operator: Operator, verb: str, status: int = 200) -> int:
    return operator.cluster.counters.get((verb, "events", status), 0)


async def test_repeats_are_counted_on_one_event(operator: Operator, kex: Objects, api: API, post: list[str]) -> None:
    post.append("hello")
    await operator.start_and_create(kex)
    [first] = await wait_for_event(api, len)
    for i in range(3):
        await kex.merge({"spec": {"field": f"new{i}"}})
        count = i + 2
        [event] = await wait_for_event(api, lambda events: events[0]["count"] == count)  # noqa: B023  # used at once
    assert event["metadata"]["name"] == first["metadata"]["name"]
    assert event["message"] == "hello"
    assert event["firstTimestamp"] == first["firstTimestamp"] <= event["lastTimestamp"]
    assert event["eventTime"] == first["eventTime"]
    assert (count_requests(operator, "create", 201), count_requests(operator, "patch")) == (1, 3)


async def test_a_burst_of_repeats_is_a_few_requests(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
) -> None:
    post += ["hello"] * 500
    await operator.start_and_create(kex)
    await wait_for_event(api, lambda events: events and events[0]["count"] == 500)
    assert count_requests(operator, "create", 201) + count_requests(operator, "patch") <= 3


@pytest.mark.fastforward
async def test_the_rate_is_limited_for_an_object_but_not_for_others(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
    logs: Logs,
) -> None:
    operator.set("posting.object_burst", 5)
    post += [f"message {i}" for i in range(20)]
    await operator.start_and_create(kex, "obj1")
    await wait_for_event(api, lambda events: len(events) == 5)
    await logs.wait("Events are reported too often .*'default/obj1'.*settings.posting.*")
    await kex.create("obj2")
    await wait_for_event(api, lambda events: len(events) == 10)
    await asyncio.sleep(100)
    post[:] = ["once again"]
    await kex.merge({"spec": {"field": "new"}}, "obj1")
    await wait_for_event(api, lambda events: len(events) == 11)
    assert len(logs.find("Events are reported too often.*")) == 1


async def test_too_many_different_messages_are_combined(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
) -> None:
    operator.set("posting.similar_limit", 3)
    post += [f"message {i}" for i in range(10)]
    await operator.start_and_create(kex)
    events = await wait_for_event(api, lambda events: len(events) == 4 and max(e["count"] for e in events) == 7)
    assert {event["message"] for event in events} == {
        "message 0",
        "message 1",
        "message 2",
        "(combined from similar events): message 9",
    }


@pytest.mark.fastforward
async def test_expired_events_are_posted_anew_with_their_count(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
) -> None:
    post.append("hello")
    await operator.start_and_create(kex)
    [first] = await wait_for_event(api, len)
    await api.request("DELETE", f"{EVENTS}/{first['metadata']['name']}")
    await kex.merge({"spec": {"field": "new"}})
    [second] = await wait_for_event(api, len)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert second["count"] == 2


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("verb", "explanation"),
    [
        ("create", "Events cannot be posted"),
        ("patch", "The counts of repeated events cannot be updated"),
    ],
)
async def test_denials_are_explained_once_and_not_tried_all_the_time(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
    logs: Logs,
    verb: str,
    explanation: str,
) -> None:
    rule = operator.cluster.faults.inject(403, resource="events", verb=verb)
    post.append("hello")
    await operator.start_and_create(kex)
    for i in range(10):
        await kex.merge({"spec": {"field": f"new{i}"}})
        await logs.wait(rf"{explanation} in the namespace 'default': .*403.*")
        await asyncio.sleep(1)
    assert count_requests(operator, verb, 403) == 1
    [record] = logs.find(f"{explanation}.*")
    assert record.levelno == logging.WARNING
    rules = "- {apiGroups: [''], resources: [events], verbs: [create, patch]}"
    assert re.search(re.escape(rules), record.getMessage())
    assert "settings.posting.enabled = False" in record.getMessage()
    operator.cluster.faults.remove(rule)
    await asyncio.sleep(100)
    await kex.merge({"spec": {"field": "newest"}})
    [event] = await wait_for_event(api, lambda events: events and events[0]["count"] > 1)
    assert event["count"] == 12


async def test_terminating_namespaces_are_not_about_permissions(
    operator: Operator,
    kex: Objects,
    api: API,
    post: list[str],
    logs: Logs,
) -> None:
    @kopf.on.delete("kopfexamples")
    def fn(body: kopf.Body, **_: object) -> None:
        kopf.info(body, reason="R", message="bye")
        kopf.info({**body, "metadata": {"name": "obj", "namespace": "nowhere"}}, reason="R", message="bye")

    define_namespaces(operator.cluster, "leaving")
    await operator.start()
    await create_in(api, "leaving")
    await logs.wait("Adding the finalizer.*")
    await api.request("DELETE", "/api/v1/namespaces/leaving")
    await logs.wait("Events can no longer be posted in the namespace 'leaving': .*")
    await logs.wait("Events can no longer be posted in the namespace 'nowhere': .* 404 NotFound.*")
    assert not logs.find("Events cannot be posted.*")


@pytest.mark.parametrize("is_blocked", [False, True], ids=["working", "blocked"])
async def test_threads_post_without_waiting_and_without_limits_of_memory(
    operator: Operator,
    kex: Objects,
    api: API,
    logs: Logs,
    is_blocked: bool,
) -> None:
    """If the loop is blocked, only as many reports are taken as the queue can hold."""
    threads: list[threading.Thread] = []

    operator.set("posting.similar_limit", 10_000)

    def report(body: kopf.Body, start: int) -> None:
        for i in range(start, start + (250 if is_blocked else 100)):
            kopf.info(body, reason="Some", message=f"message {i if is_blocked else 0}")

    @kopf.on.create("kopfexamples")
    async def fn(body: kopf.Body, **_: Any) -> None:
        import contextvars

        for i in range(8):
            thread = threading.Thread(target=contextvars.copy_context().run, args=(report, body, i * 250))
            thread.start()
            threads.append(thread)
        if is_blocked:
            for thread in threads:
                thread.join()

    await operator.start_and_handle(kex)
    if is_blocked:
        await logs.wait("Too many events are waiting to be posted; the excess is dropped.")
        assert not any(thread.is_alive() for thread in threads)
    else:
        await wait_for_event(api, lambda events: sum(event["count"] for event in events) == 800)
    for thread in threads:
        thread.join()
