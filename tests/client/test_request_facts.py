"""What is told of requests: each that begins, ends; with what the server has said, or why it has said nothing."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._client.http.request_facts import RequestBegun, RequestEnded, RequestRetried, StreamAnswered
from kopf._settings.settings import OperatorSettings
from tests.client.scripted import ScriptedServer, drop, never, refuse, reply


@pytest.fixture
def facts(api: APIClient) -> Iterator[list[Any]]:
    facts: list[Any] = []
    for kind in (RequestBegun, StreamAnswered, RequestEnded, RequestRetried):
        api.bus.subscribe(kind, facts.append)
    yield facts
    begun = [fact for fact in facts if isinstance(fact, RequestBegun)]
    assert {*begun} == {fact.request for fact in facts if isinstance(fact, RequestEnded)}


async def test_successes(api: APIClient, server: ScriptedServer, facts: list[Any]) -> None:
    server.on("GET /x", reply())
    await api.get("/x", params={"a": "b"})
    begun, ended = facts
    assert (begun.method, begun.path, begun.server, begun.is_stream) == ("GET", "/x?a=b", server.url, False)
    assert (ended.request, ended.status, ended.error) == (begun, 200, None)


async def test_refusals(api: APIClient, server: ScriptedServer, facts: list[Any]) -> None:
    server.on("GET /x", refuse(404, "NotFound"))
    with pytest.raises(APIError):
        await api.get("/x")
    assert (facts[-1].status, facts[-1].error) == (404, None)


async def test_lost_responses(
    api: APIClient, server: ScriptedServer, settings: OperatorSettings, facts: list[Any]
) -> None:
    settings.networking.error_backoffs = [0.001]
    server.on("POST /x", drop, drop)
    with pytest.raises(APINetworkError):
        await api.post("/x", payload={})
    ended = [fact for fact in facts if isinstance(fact, RequestEnded)]
    assert [fact.status for fact in ended] == [None, None]
    assert all(isinstance(fact.error, APINetworkError) for fact in ended)
    retried = next(fact for fact in facts if isinstance(fact, RequestRetried))
    assert (retried.method, retried.path, retried.delay) == ("POST", "/x", 0.001)


async def test_cancelled_requests(api: APIClient, server: ScriptedServer, facts: list[Any]) -> None:
    server.on("GET /x", never)
    task = asyncio.create_task(api.get("/x"))
    await server.until("GET /x", 1)
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(facts[-1].error, asyncio.CancelledError)


async def test_requests_by_those_who_handle_an_error(
    api: APIClient, server: ScriptedServer, facts: list[Any]
) -> None:
    server.on("GET /x", reply())
    try:
        raise ValueError("of somebody else")
    except ValueError:
        await api.get("/x")
    assert facts[-1].error is None


async def test_headers_by_listeners(api: APIClient, server: ScriptedServer) -> None:
    def add(fact: RequestBegun) -> None:
        fact.headers["traceparent"] = "00-1-2-01"

    api.bus.subscribe(RequestBegun, add)
    server.on("PATCH /x", reply())
    await api.patch("/x", payload={"a": 1}, headers={"x-own": "yes"})
    headers = server.requests[0].headers
    assert (headers["traceparent"], headers["x-own"]) == ("00-1-2-01", "yes")
    assert headers["Content-Type"] == "application/merge-patch+json"


async def test_streams(api: APIClient, server: ScriptedServer, facts: list[Any]) -> None:
    server.on("WATCH /x", reply())
    async for _ in api.stream("/x", params={"watch": "true"}):
        assert isinstance(facts[-1], StreamAnswered)
        assert (facts[-1].request, facts[-1].status) == (facts[0], 200)
    assert facts[0].is_stream
    assert (facts[-1].status, facts[-1].error) == (200, None)
