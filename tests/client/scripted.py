"""
A real HTTP server that does what a test tells it to do, request by request: for the faults of servers and
networks.

Every endpoint has a list of responses, one per request. A request beyond the list is answered with HTTP 418,
which no code tolerates, and is remembered in ``unexpected``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """Serves on the loopback; ``requests`` are those seen so far, in the order of arrival."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.unexpected: list[str] = []
        self.url = ""
        self._scripts: dict[str, list[Responder]] = {}
        self._runner: web.AppRunner | None = None
        self._arrival = asyncio.Event()

    def on(self, endpoint: str, *responders: Responder) -> None:
        """Add responses for an endpoint, e.g. ``"GET /path"``, or ``"WATCH /path"`` for watch streams."""
        self._scripts.setdefault(endpoint, []).extend(responders)

    def count(self, endpoint: str) -> int:
        """Count the requests to the endpoint."""
        return sum(_get_endpoint(request) == endpoint for request in self.requests)

    async def until(self, endpoint: str, count: int) -> None:
        """Wait until the endpoint has got so many requests."""
        while self.count(endpoint) < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'http' if context is None else 'https'}://{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        endpoint = _get_endpoint(request)
        self.requests.append(request)
        self.bodies.append(await request.read())
        self._arrival.set()
        script = self._scripts.get(endpoint)
        if not script:
            self.unexpected.append(endpoint)
            return web.Response(status=418, text=f"{endpoint} is not expected")
        return await script.pop(0)(request)


def _get_endpoint(request: web.Request) -> str:
    return f"{'WATCH' if request.query.get('watch') else request.method} {request.path}"


def reply(content: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Responder:
    """Respond with a JSON document."""

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.json_response(content, status=status, headers=headers)

    return respond


def refuse(status: int, reason: str = "", message: str = "", **headers: str) -> Responder:
    """Respond with an error as Kubernetes does; ``Retry_After`` becomes a header."""
    content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return reply({**content, "message": message}, status=status, headers=named)


def stream(*chunks: bytes, end: str = "close") -> Responder:
    """
    Respond with a stream: ``close`` it properly at the end, ``abort`` it, or leave it ``silent`` forever.
    """

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end == "abort":
            assert request.transport is not None
            # What is written goes out first, unlike with abort(); but the chunked response is not concluded.
            request.transport.close()
        if end == "silent":
            await asyncio.Event().wait()
        return response

    return respond


async def never(request: web.Request) -> web.StreamResponse:
    """Never respond."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def drop(request: web.Request) -> web.StreamResponse:
    """Break the connection instead of responding."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def line(type_: str, content: Mapping[str, Any]) -> bytes:
    """Make a line of a watch stream."""
    return json.dumps({"type": type_, "object": content}).encode() + b"\n"


def obj(name: str, version: int, uid: str | None = None, **fields: Any) -> dict[str, Any]:
    """Make an object of the test resource."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata, **fields}


def listing(version: int, *objects: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    """Make a page of a listing: its objects have no kinds, as in Kubernetes."""
    items = [{key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in objects]
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExampleList", "metadata": metadata, "items": items}
