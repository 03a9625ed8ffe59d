"""The server of the console: real HTTP on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kopf._insight.endpoint.console_server import ConsoleServer, Route, Routes, open_stream
from kopf._insight.endpoint.protection import protect
from kopf._serving.threaded_server import ServingError
from tests.patience import PATIENCE

TOKEN = "0123456789abcdef"

Reply = tuple[int, Mapping[str, str], str]


@contextlib.asynccontextmanager
async def serving(routes: Routes, token: str | None = None) -> AsyncIterator[str]:
    endpoint, protection = protect("http://127.0.0.1:0", token)
    async with ConsoleServer(endpoint, protection, routes) as server:
        yield str(server.endpoint).rstrip("/")


async def ask(url: str, method: str = "GET", **kwargs: Any) -> Reply:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, allow_redirects=False, **kwargs) as response,
    ):
        return response.status, response.headers, await response.text()


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response({"who": request.query.get("who")})


async def fail(request: web.BaseRequest) -> web.StreamResponse:
    raise RuntimeError("a secret is in here")


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    routes["/api/hello"] = Route(hello)
    routes["/api/fail"] = Route(fail)
    return routes


async def test_routes(routes: Routes) -> None:
    async with serving(routes) as url:
        status, headers, text = await ask(f"{url}/api/hello?who=me")
        assert (status, text) == (200, '{"who": "me"}')
        assert headers["Content-Type"].startswith("application/json")
        assert (await ask(f"{url}/api/hello", "HEAD"))[::2] == (200, "")
        assert (await ask(f"{url}/api/other"))[0] == 404
        assert (await ask(f"{url}/"))[0] == 404
        status, headers, _ = await ask(f"{url}/api/hello", "POST")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


async def test_all_answers_are_protected_in_browsers(routes: Routes) -> None:
    async with serving(routes) as url:
        for path in ("hello", "other", "fail"):
            _, headers, _ = await ask(f"{url}/api/{path}")
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert not [name for name in headers if name.lower().startswith("access-control-")]


async def test_errors_are_in_the_logs_only(routes: Routes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(routes) as url:
        for _ in range(3):
            status, _, text = await ask(f"{url}/api/fail")
            assert status == 500
            assert "secret" not in text
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(records) == 1  # those who ask, decide how often
    assert "a secret is in here" in (records[0].exc_text or str(records[0].exc_info))


async def test_other_names_lead_nowhere(routes: Routes) -> None:
    async with serving(routes) as url:
        assert (await ask(f"{url}/api/hello", headers={"Host": "evil.example.com"}))[0] == 403
        assert (await ask(f"{url}/api/hello", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 403


async def test_tokens(routes: Routes) -> None:
    async with serving(routes, TOKEN) as url:
        status, headers, text = await ask(f"{url}/api/hello")
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "token" in text
        assert (await ask(f"{url}/api/other"))[0] == 401  # nothing is told to strangers
        assert (await ask(f"{url}/api/hello", headers={"Authorization": f"Bearer {TOKEN}"}))[0] == 200


async def test_browsers(routes: Routes) -> None:
    async with serving(routes, TOKEN) as url:
        status, headers, _ = await ask(f"{url}/api/hello?who=me&token={TOKEN}")
        assert (status, headers["Location"]) == (303, "/api/hello?who=me")
        assert TOKEN not in str(headers)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(f"{url}/api/hello?who=me&token={TOKEN}") as response:
                assert (response.status, await response.json()) == (200, {"who": "me"})
                assert "token" not in str(response.url)
            async with session.get(f"{url}/api/hello?who=you") as response:
                assert response.status == 200
        assert (await ask(f"{url}/api/hello?token={TOKEN[:-1]}x"))[0] == 401


async def test_redirects_never_leave(routes: Routes) -> None:
    async with serving(routes, TOKEN) as url:
        port = int(url.rsplit(":")[-1])
        for target in ("//evil.example.com/", "/%5Cevil.example.com/", "http://evil.example.com/"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target}?token={TOKEN} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            locations = [line for line in answer.splitlines() if line.startswith("Location:")]
            assert locations
            assert all(line.startswith("Location: /") and line[11:12] not in ("/", "\\") for line in locations)


async def test_streams(routes: Routes) -> None:
    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = await open_stream(request, "text/event-stream")
        for number in range(3):
            await response.write(b"data: %d\n\n" % number)
        return response

    routes["/api/stream"] = Route(stream)
    async with serving(routes) as url:
        status, headers, text = await ask(f"{url}/api/stream")
    assert (status, text) == (200, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_endless_streams_do_not_hold_the_exit(routes: Routes) -> None:
    is_cancelled = []

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = await open_stream(request, "text/event-stream")
        await response.write(b"data: 0\n\n")
        try:
            await asyncio.sleep(1000)
        finally:
            is_cancelled.append(True)
        return response

    routes["/api/stream"] = Route(stream)
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(PATIENCE), serving(routes) as url:
            response = await session.get(f"{url}/api/stream")
            assert await response.content.readline() == b"data: 0\n"
        response.close()
    assert is_cancelled


async def test_it_answers_when_the_operator_is_blocked(routes: Routes) -> None:
    async with serving(routes) as url:
        port = int(url.rsplit(":")[-1])
        with socket.create_connection(("127.0.0.1", port)) as client:  # nothing is awaited here
            client.settimeout(PATIENCE)
            client.sendall(b"GET /api/hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")


async def test_occupied_ports_are_a_clear_error(routes: Routes) -> None:
    async with serving(routes) as url:
        endpoint, protection = protect(url, None)
        with pytest.raises(ServingError, match=r"The console cannot be served at http://.*: .*in use"):
            await ConsoleServer(endpoint, protection, Routes()).__aenter__()
