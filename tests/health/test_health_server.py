from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from kopf._health.health import HealthReport, HealthServer
from kopf._serving.endpoints import Endpoint, parse_endpoint


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


async def report_healthy() -> HealthReport:
    return HealthReport(is_healthy=True, content=b'{"a": 1}')


async def report_unhealthy() -> HealthReport:
    return HealthReport(is_healthy=False, content=b'{"a": 1}')


async def request(url: str, method: str = "GET") -> tuple[int, str, bytes]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as response:
        return response.status, response.content_type, await response.read()


@pytest.mark.parametrize(("report", "status"), [(report_healthy, 200), (report_unhealthy, 503)])
async def test_answers(port: int, report: Callable[[], Awaitable[HealthReport]], status: int) -> None:
    async with HealthServer(Endpoint("127.0.0.1", port, "/healthz"), report, {}):
        url = f"http://127.0.0.1:{port}"
        assert await request(f"{url}/healthz") == (status, "application/json", b'{"a": 1}')
        assert (await request(f"{url}/healthz", "HEAD"))[0] == status
        assert (await request(f"{url}/other"))[0] == 404
        assert (await request(f"{url}/healthz", "POST"))[0] == 405


async def test_nothing_stays_if_it_is_cancelled_while_it_starts(port: int) -> None:
    """An embedded operator can be stopped at any moment; the next one needs the port."""
    entering = asyncio.create_task(HealthServer(Endpoint("127.0.0.1", port, "/"), report_healthy, {}).__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not [thread for thread in threading.enumerate() if thread.name == "kopf-health"]
    async with HealthServer(Endpoint("127.0.0.1", port, "/"), report_healthy, {}):
        pass
