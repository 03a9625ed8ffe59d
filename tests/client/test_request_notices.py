"""What is told of requests: each that begins, ends; with what the server has said, or why it has said nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kopf._client.client_observer import Headers
from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._controller.observer import Observer, Observers
from kopf._settings.settings import OperatorSettings
from tests.client.scripted import ScriptedServer, drop, never, refuse, reply
from tests.observing import Notices


@pytest.fixture
def notices(api: APIClient) -> Iterator[Notices]:
    observers, notices = Observers(), Notices()
    observers.add(notices)
    api.observer = observers
    yield notices
    assert len(notices.of("request_begun")) == len(notices.of("request_ended"))


async def test_successes(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("GET /x", reply())
    await api.get("/x", params={"a": "b"})
    begun, ended = notices
    assert (begun.name, begun.method, begun.target, begun.server) == ("request_begun", "GET", "/x?a=b", server.url)
    assert (ended.name, ended.method, ended.server) == ("request_ended", "GET", server.url)
    assert (ended.status, ended.error) == (200, None)


async def test_refusals(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("GET /x", refuse(404, "NotFound"))
    with pytest.raises(APIError):
        await api.get("/x")
    assert notices[-1].status == 404
    assert isinstance(notices[-1].error, APIError)


async def test_lost_responses(
    api: APIClient, server: ScriptedServer, settings: OperatorSettings, notices: Notices
) -> None:
    settings.networking.error_backoffs = [0.001]
    server.on("POST /x", drop, drop)
    with pytest.raises(APINetworkError):
        await api.post("/x", payload={})
    ended = notices.of("request_ended")
    assert [item.status for item in ended] == [None, None]
    assert all(isinstance(item.error, APINetworkError) for item in ended)
    [retried] = notices.of("request_retried")
    assert (retried.method, retried.target, retried.delay) == ("POST", "/x", 0.001)
    assert retried.error.server == server.url


async def test_cancelled_requests(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("GET /x", never)
    task = asyncio.create_task(api.get("/x"))
    await server.until("GET /x", 1)
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(notices[-1].error, asyncio.CancelledError)


async def test_requests_by_those_who_handle_an_error(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("GET /x", reply())
    try:
        raise ValueError("of somebody else")
    except ValueError:
        await api.get("/x")
    assert notices[-1].error is None


class Tracing(Observer):
    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        return {**(headers or {}), "traceparent": "00-1-2-01"}


async def test_headers_by_observers(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    assert isinstance(api.observer, Observers)
    api.observer.add(Tracing())
    server.on("PATCH /x", reply())
    await api.patch("/x", payload={"a": 1}, headers={"x-own": "yes"})
    headers = server.requests[0].headers
    assert (headers["traceparent"], headers["x-own"]) == ("00-1-2-01", "yes")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert notices[-1].headers["traceparent"] == "00-1-2-01"


async def test_streams(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("WATCH /x", reply())
    async for _ in api.stream("/x", params={"watch": "true"}):
        assert (notices[-1].name, notices[-1].server, notices[-1].status) == ("stream_answered", server.url, 200)
    assert len(notices) == 1


async def test_streams_with_no_response(api: APIClient, server: ScriptedServer, notices: Notices) -> None:
    server.on("WATCH /x", drop)
    with pytest.raises(APINetworkError):
        async for _ in api.stream("/x", params={"watch": "true"}):
            pass
    assert [(item.name, item.server) for item in notices] == [("stream_failed", server.url)]
