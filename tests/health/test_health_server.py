from __future__ import annotations

import asyncio
import re
import threading

import aiohttp
import pytest
from aiohttp import web

from kopf._serving.endpoints import Endpoint, parse_endpoint
from kopf._serving.threaded_server import ReadOnlyServer


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://0.0.0.0:8080/healthz", Endpoint("0.0.0.0", 8080, "/healthz")),
        ("http://localhost:8080", Endpoint("localhost", 8080, "/")),
        ("http://:8080/", Endpoint(None, 8080, "/")),
        ("http://[::]:8080/a/b", Endpoint("::", 8080, "/a/b")),
        ("http://localhost/x%20y", Endpoint("localhost", 80, "/x y")),
    ],
)
def test_parsing(url: str, expected: Endpoint) -> None:
    assert parse_endpoint(url) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://localhost:8080/", "must be of HTTP"),
        ("localhost:8080", "must be of HTTP"),
        ("8080", "must be of HTTP"),
        ("", "must be of HTTP"),
        ("http://localhost:port/", "is not a URL"),
        ("http://localhost:99999/", "is not a URL"),
        ("http://localhost:8080/?query=1", "must have only"),
        ("http://user:password@localhost:8080/", "must have only"),
    ],
)
def test_bad_endpoints(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(repr(url))} {reason}.*http://0.0.0.0:8080/healthz"):
        parse_endpoint(url)


def test_endpoints_as_text() -> None:
    assert str(Endpoint("localhost", 80, "/x")) == "http://localhost:80/x"
    assert str(Endpoint("::", 80, "/")) == "http://[::]:80/"
    assert str(Endpoint(None, 80, "/")) == "http://*:80/"


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response({"a": 1}, status=503)


def serve(port: int) -> ReadOnlyServer:
    return ReadOnlyServer(Endpoint("127.0.0.1", port, "/healthz"), {"/healthz": answer}, subject="the health")


async def request(url: str, method: str = "GET") -> tuple[int, str, bytes]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as response:
        return response.status, response.content_type, await response.read()


async def test_answers(port: int) -> None:
    async with serve(port):
        url = f"http://127.0.0.1:{port}"
        assert await request(f"{url}/healthz") == (503, "application/json", b'{"a": 1}')
        assert (await request(f"{url}/healthz", "HEAD"))[0] == 503
        assert (await request(f"{url}/other"))[0] == 404
        assert (await request(f"{url}/healthz", "POST"))[0] == 405


async def test_nothing_stays_if_it_is_cancelled_while_it_starts(port: int) -> None:
    """An embedded operator can be stopped at any moment; the next one needs the port."""
    entering = asyncio.create_task(serve(port).__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not [thread for thread in threading.enumerate() if thread.name == "kopf-health"]
    async with serve(port):
        pass
