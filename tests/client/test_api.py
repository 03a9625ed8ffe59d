from __future__ import annotations

import asyncio
import json
import logging
import pathlib
import re
import socket
import time
from collections.abc import Iterator

import aiohttp
import pytest
from aiohttp import web

from kopf._client.auth.credentials import AiohttpSession, ConnectionInfo, LoginError
from kopf._client.auth.vault import Vault
from kopf._client.errors import (
    APIConflictError,
    APIForbiddenError,
    APINetworkError,
    APIServerError,
    APITooManyRequestsError,
)
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from kopf._values.patches import JSON_PATCH
from tests.client.scripted import ScriptedServer, drop, never, refuse, reply, stream


async def collect(api: APIClient, path: str = "/x") -> list[list[bytes]]:
    return [lines async for lines in api.stream(path, params={"watch": "true"})]


def get_header(server: ScriptedServer, header: str) -> list[str | None]:
    return [request.headers.get(header) for request in server.requests]


async def test_get(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /api/v1/pods", reply({"kind": "PodList"}))
    body = await api.get("/api/v1/pods", params={"labelSelector": "a=b,c", "limit": "1"})
    assert json.loads(body) == {"kind": "PodList"}
    [request] = server.requests
    assert dict(request.query) == {"labelSelector": "a=b,c", "limit": "1"}
    assert request.headers["Authorization"] == "Bearer token-1"
    assert request.headers["Accept"] == "application/json"
    assert re.fullmatch(r"kopf(/\S+)?", request.headers["User-Agent"])
    assert server.bodies == [b""]


async def test_quoted_paths_are_sent_as_they_are(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /x/a%b", reply())
    await api.get("/x/a%25b")
    assert server.requests[0].raw_path == "/x/a%25b"


async def test_servers_with_paths(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    vault.populate([ConnectionInfo(server=f"{server.url}/prefix/", priority=1)])
    server.on("GET /prefix/api", reply())
    await api.get("/api")


async def test_post(server: ScriptedServer, api: APIClient) -> None:
    server.on("POST /x", reply({"a": 1}), reply({"a": 1}))
    assert json.loads(await api.post("/x", payload={"a": "ñ"})) == {"a": 1}
    await api.post("/x", payload=b'{"a":"b"}')
    assert server.bodies == ['{"a":"ñ"}'.encode(), b'{"a":"b"}']
    assert get_header(server, "Content-Type") == ["application/json"] * 2


async def test_patch(server: ScriptedServer, api: APIClient) -> None:
    server.on("PATCH /x", reply(), reply())
    await api.patch("/x", payload={"a": None})
    await api.patch("/x", payload=[{"op": "remove", "path": "/a"}], content_type=JSON_PATCH)
    assert server.bodies == [b'{"a":null}', b'[{"op":"remove","path":"/a"}]']
    assert get_header(server, "Content-Type") == ["application/merge-patch+json", "application/json-patch+json"]


async def test_delete(server: ScriptedServer, api: APIClient) -> None:
    server.on("DELETE /x", reply(), reply())
    await api.delete("/x")
    await api.delete("/x", payload={"propagationPolicy": "Foreground"})
    assert server.bodies == [b"", b'{"propagationPolicy":"Foreground"}']
    assert server.requests[1].headers["Content-Type"] == "application/json"


async def test_large_bodies(server: ScriptedServer, api: APIClient) -> None:
    server.on("PATCH /x", refuse(413, "RequestEntityTooLarge"))
    with pytest.raises(Exception, match=r"413"):
        await api.patch("/x", payload={"data": "x" * 2**20})


@pytest.mark.parametrize(("status", "cls"), [(403, APIForbiddenError), (409, APIConflictError)])
async def test_refusals_are_not_repeated(
    server: ScriptedServer, api: APIClient, status: int, cls: type[Exception]
) -> None:
    server.on("GET /x", refuse(status, "Because", "of something"))
    with pytest.raises(cls, match=rf"GET /x: {status} Because: of something"):
        await api.get("/x", params={"a": "b"})
    assert len(server.requests) == 1


@pytest.mark.fastforward
@pytest.mark.parametrize("failure", [refuse(500), refuse(503), refuse(429), drop])
async def test_temporary_failures_are_repeated(
    server: ScriptedServer,
    api: APIClient,
    settings: OperatorSettings,
    caplog: pytest.LogCaptureFixture,
    failure: object,
) -> None:
    settings.networking.error_backoffs = (10, 20)
    server.on("PATCH /x", failure, failure, reply({"a": 1}))  # type: ignore[arg-type]
    started = asyncio.get_running_loop().time()
    assert json.loads(await api.patch("/x", payload={})) == {"a": 1}
    assert 30 <= asyncio.get_running_loop().time() - started < 35
    assert len(server.requests) == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "will be repeated in 10 seconds: PATCH " in caplog.messages[0]
    assert "will be repeated in 20 seconds: PATCH " in caplog.messages[1]
    assert all(record.exc_info is None for record in caplog.records)


async def test_retries_are_logged_where_the_caller_wants(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.networking.error_backoffs = 0
    server.on("PATCH /x", refuse(500), reply())
    await api.patch("/x", payload={}, logger=logging.getLogger("kopf.objects"))
    assert [record.name for record in caplog.records] == ["kopf.objects"]


@pytest.mark.fastforward
async def test_failures_escalate_in_the_end(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.networking.error_backoffs = [1, 2]
    server.on("GET /x", refuse(500), refuse(429), refuse(503, "ServiceUnavailable", "try later"))
    with pytest.raises(APIServerError, match=r"GET /x: 503 ServiceUnavailable: try later"):
        await api.get("/x")
    server.on("GET /y", refuse(500), refuse(500), refuse(429))
    with pytest.raises(APITooManyRequestsError):
        await api.get("/y")


@pytest.mark.parametrize(("backoffs", "attempts"), [((), 1), ([], 1), (0, 2), (0.0, 2), ([0] * 3, 4)])
async def test_forms_of_backoffs(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, backoffs: list[float], attempts: int
) -> None:
    settings.networking.error_backoffs = backoffs
    server.on("GET /x", *[refuse(500)] * attempts)
    with pytest.raises(APIServerError):
        await api.get("/x")
    assert len(server.requests) == attempts


async def test_explicit_backoffs_override_the_settings(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /x", refuse(500))
    with pytest.raises(APIServerError):
        await api.get("/x", backoffs=())


@pytest.mark.fastforward
async def test_infinite_backoffs_start_anew_for_every_request(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    class Infinite:
        started = 0

        def __iter__(self) -> Iterator[float]:
            self.started += 1
            while True:
                yield 1

    settings.networking.error_backoffs = backoffs = Infinite()
    server.on("GET /x", *[refuse(500)] * 30, reply(), refuse(500), reply(), reply())
    await api.get("/x")
    await api.get("/x")
    await api.get("/x")
    assert backoffs.started == 2


@pytest.mark.fastforward
@pytest.mark.parametrize(("enforced", "seconds"), [(False, 10 + 30), (True, 3 + 30)])
async def test_retry_after(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, enforced: bool, seconds: float
) -> None:
    settings.networking.error_backoffs = (10, 20)
    settings.networking.enforce_retry_after = enforced
    server.on("GET /x", refuse(429, Retry_After="3"), refuse(503, Retry_After="30"), reply())
    started = asyncio.get_running_loop().time()
    await api.get("/x")
    assert seconds <= asyncio.get_running_loop().time() - started < 1.1 * seconds + 2


@pytest.mark.fastforward
async def test_throttling_is_waited_out_as_long_as_the_server_asks(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    settings.networking.error_backoffs = (1,)
    server.on("GET /x", *[refuse(429, Retry_After="5")] * 20, reply())
    started = asyncio.get_running_loop().time()
    await api.get("/x")
    assert asyncio.get_running_loop().time() - started >= 100


@pytest.mark.fastforward
async def test_request_timeout(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.networking.request_timeout = 100
    settings.networking.error_backoffs = ()
    server.on("GET /x", never, never)
    started = asyncio.get_running_loop().time()
    with pytest.raises(APINetworkError, match=rf"GET {server.url}/x: no response in time"):
        await api.get("/x")
    assert 99 <= asyncio.get_running_loop().time() - started < 102
    with pytest.raises(APINetworkError):
        await api.get("/x", timeout=10)
    assert asyncio.get_running_loop().time() - started < 120


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("is_stream", "watching", "connecting", "requests", "expected"),
    [
        (False, 50, 5, 500, 5),
        (True, 5, 50, 500, 5),  # the most specific one
        (True, 50, 5, 500, 50),
        (True, None, 5, 500, 5),  # that of regular requests, if there is none of streams
        (True, None, None, 5, 5),  # the overall time of regular requests, if there are none for connecting
        (True, None, None, 40, 40),
    ],
)
async def test_connect_timeouts(
    api: APIClient,
    vault: Vault,
    settings: OperatorSettings,
    is_stream: bool,
    watching: float | None,
    connecting: float | None,
    requests: float,
    expected: float,
) -> None:
    settings.watching.connect_timeout = watching
    settings.networking.connect_timeout = connecting
    settings.networking.request_timeout = requests
    settings.networking.error_backoffs = ()
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it never accepts, so the TLS handshake hangs
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        vault.populate([ConnectionInfo(server=url, insecure=True, priority=1)])
        started = loop.time()
        with pytest.raises(APINetworkError, match=r"onnection timeout"):
            await (anext(api.stream("/x")) if is_stream else api.get("/x"))
        assert expected <= loop.time() - started < expected * 1.1 + 1


async def test_nobody_listens(vault: Vault, api: APIClient, settings: OperatorSettings) -> None:
    settings.networking.error_backoffs = ()
    vault.populate([ConnectionInfo(server="http://127.0.0.1:1", priority=1)])
    with pytest.raises(APINetworkError, match=r"GET http://127.0.0.1:1/x: Cannot connect") as info:
        await api.get("/x")
    assert isinstance(info.value.__cause__, OSError)


async def test_refused_credentials_are_replaced(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    vault.populate([ConnectionInfo(server=server.url, token="token-2", priority=-1)])
    server.on("GET /x", refuse(401), reply({"a": 1}))
    assert json.loads(await api.get("/x")) == {"a": 1}
    assert get_header(server, "Authorization") == ["Bearer token-1", "Bearer token-2"]


async def test_login_is_waited_for_and_fails(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    server.on("GET /x", refuse(401, "Unauthorized", "go away"))
    task = asyncio.create_task(api.get("/x"))
    await vault.wait_until_depleted()
    error = r"Ran out of valid credentials: .*GET /x: 401 Unauthorized: go away"
    with pytest.raises(LoginError, match=error) as info:
        vault.populate([ConnectionInfo(server=server.url, token="token-1")])
    vault.fail(info.value)
    with pytest.raises(LoginError, match=error):
        await task


async def test_parallel_requests_are_refused_together(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    server.on("GET /x", *[refuse(401)] * 2, *[reply({"a": 1})] * 2)
    tasks = [asyncio.create_task(api.get("/x")) for _ in range(2)]
    await vault.wait_until_depleted()
    vault.populate([ConnectionInfo(server=server.url, token="token-2")])
    assert await asyncio.gather(*tasks) == [b'{"a": 1}'] * 2
    assert sorted(map(str, get_header(server, "Authorization"))) == ["Bearer token-1"] * 2 + ["Bearer token-2"] * 2


async def test_requests_in_flight_survive_the_refusal_of_others(
    server: ScriptedServer, vault: Vault, api: APIClient
) -> None:
    gate = asyncio.Event()

    async def wait(request: object) -> object:
        await gate.wait()
        return await reply({"a": 1})(request)  # type: ignore[arg-type]

    server.on("GET /slow", wait)  # type: ignore[arg-type]
    server.on("GET /x", refuse(401), reply())
    slow = asyncio.create_task(api.get("/slow"))
    await server.until("GET /slow", 1)
    fast = asyncio.create_task(api.get("/x"))
    await vault.wait_until_depleted()
    vault.populate([ConnectionInfo(server=server.url, token="token-2")])
    await fast
    gate.set()
    assert json.loads(await slow) == {"a": 1}


async def test_renewed_token_is_noticed_when_the_old_one_is_refused(
    server: ScriptedServer, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    vault.populate([ConnectionInfo(server=server.url, token_path=path, priority=1)])
    server.on("GET /first", reply())
    await api.get("/first")
    path.write_text("new")
    are_refused = asyncio.Barrier(2)

    async def refuse_together(request: web.Request) -> web.StreamResponse:
        await are_refused.wait()
        return await refuse(401)(request)

    server.on("GET /x", refuse_together, refuse_together, reply(), reply())
    await asyncio.gather(api.get("/x"), api.get("/x"))
    assert get_header(server, "Authorization")[1:] == ["Bearer old"] * 2 + ["Bearer new"] * 2


@pytest.mark.fastforward
async def test_renewed_token_is_used_with_no_refusals(
    server: ScriptedServer, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    vault.populate([ConnectionInfo(server=server.url, token_path=path, priority=1)])
    server.on("GET /x", reply(), reply())
    await api.get("/x")
    path.write_text("new")
    await asyncio.sleep(61)
    await api.get("/x")
    assert get_header(server, "Authorization") == ["Bearer old", "Bearer new"]


async def test_stream_of_lines(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", stream(b"a\nb\nc", b"d\ne"))
    first, *others = await collect(api)
    assert first == []  # the sign of the beginning
    assert [line for lines in others for line in lines] == [b"a", b"b", b"cd"]


async def test_lines_of_megabytes(server: ScriptedServer, api: APIClient) -> None:
    long = b"x" * 3 * 2**20
    server.on("WATCH /x", stream(b"a\n" + long + b"\nb\n"))
    started = time.process_time()
    assert [line for lines in await collect(api) for line in lines] == [b"a", long, b"b"]
    assert time.process_time() - started < 2


async def test_many_lines_come_in_few_batches(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", stream(b"line\n" * 10_000))
    batches = await collect(api)
    assert sum(map(len, batches)) == 10_000
    assert len(batches) < 100


async def test_broken_streams(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", stream(b"a\nb", end="abort"))
    batches = api.stream("/x", params={"watch": "true"})
    assert [await anext(batches), await anext(batches)] == [[], [b"a"]]
    with pytest.raises(APINetworkError):
        await anext(batches)


async def test_streams_are_not_repeated(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", refuse(500))
    with pytest.raises(APIServerError):
        await collect(api)


async def test_streams_use_other_credentials_when_refused(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    server.on("WATCH /x", refuse(401), stream(b"a\n"))
    task = asyncio.create_task(collect(api))
    await vault.wait_until_depleted()
    vault.populate([ConnectionInfo(server=server.url, token="token-2")])
    assert await task == [[], [b"a"]]


@pytest.mark.fastforward
async def test_silent_streams_are_network_errors(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    assert settings.watching.inactivity_timeout == 70
    server.on("WATCH /x", stream(b"a\n", end="silent"))
    started = asyncio.get_running_loop().time()
    with pytest.raises(APINetworkError, match=r"imeout"):
        await collect(api)
    assert 69 <= asyncio.get_running_loop().time() - started < 72


@pytest.mark.fastforward
async def test_streams_end_normally_by_our_own_timeout(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    settings.watching.client_timeout = 50
    server.on("WATCH /x", stream(b"a\n", end="silent"))
    started = asyncio.get_running_loop().time()
    assert await collect(api) == [[], [b"a"]]
    assert 49 <= asyncio.get_running_loop().time() - started < 52


@pytest.mark.fastforward
async def test_streams_that_do_not_begin(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.watching.client_timeout = 50
    server.on("WATCH /x", never)
    with pytest.raises(APINetworkError, match=r"no response in time"):
        await collect(api)


async def test_ready_made_sessions_are_used_as_they_are(server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    session = aiohttp.ClientSession(headers={"X-Auth": "yes"}, raise_for_status=True)
    vault.populate([AiohttpSession(server=server.url, aiohttp_session=session, priority=1)])
    server.on("GET /x", reply({"a": 1}), refuse(403, "Forbidden", "go away"), refuse(401), reply({"a": 2}))
    assert json.loads(await api.get("/x")) == {"a": 1}
    with pytest.raises(APIForbiddenError, match="go away"):
        await api.get("/x")
    assert json.loads(await api.get("/x")) == {"a": 2}
    assert get_header(server, "X-Auth") == ["yes", "yes", "yes", None]
    assert session.closed
