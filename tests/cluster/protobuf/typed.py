"""
A client that speaks protobuf as typed clients in Go do by default: it sends it, and accepts JSON only as a fallback.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

from ..conftest import Client, Reply
from .witness import find_class, read_events, unwrap, wrap

PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPT = f"{PROTOBUF},application/json"
CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"


class Typed(NamedTuple):
    """An object: what it is, and the message."""

    api_version: str
    kind: str
    message: Any


class TypedClient:
    """Requests with messages; the package of the answers is told, or that of the request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, method: str, path: str, body: Typed | None = None, **kwargs: Any) -> Reply:
        """Send a request, and take any answer as it is."""
        headers = {"Accept": ACCEPT, **kwargs.pop("headers", {})}
        if body is not None:
            kwargs["data"] = wrap(*body)
            headers = {"Content-Type": PROTOBUF, **headers}
        return await self._client.call(method, path, headers=headers, **kwargs)

    async def do(self, method: str, path: str, package: str, body: Typed | None = None, **kwargs: Any) -> Typed:
        """Send a request that must succeed."""
        reply = await self.call(method, path, body, **kwargs)
        assert reply.status in (200, 201), reply
        return read(reply, package)

    async def fail(self, method: str, path: str, body: Typed | None = None, **kwargs: Any) -> Any:
        """Send a request that must be refused; give the status."""
        reply = await self.call(method, path, body, **kwargs)
        status = read(reply, META)
        assert status.kind == "Status"
        assert status.message.code == reply.status >= 400
        return status.message

    @contextlib.asynccontextmanager
    async def watch(self, path: str, accept: str = f"{PROTOBUF};stream=watch", **params: str) -> AsyncIterator[Events]:
        headers = {"Accept": accept}
        async with self._client.session.get(path, params={"watch": "1", **params}, headers=headers) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"] == f"{PROTOBUF};stream=watch"
            yield Events(response)


class Events:
    """A watch stream, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content

    async def next(self, package: str) -> tuple[str, Typed]:
        """Give the type and the object of the next event."""
        head = await self._content.readexactly(4)
        [(type_, obj)] = read_events(head + await self._content.readexactly(int.from_bytes(head)))
        return type_, parse(obj, package)


def read(reply: Reply, package: str) -> Typed:
    assert reply.headers["Content-Type"] == PROTOBUF, reply
    return parse(reply.body, package)


def parse(data: bytes, package: str) -> Typed:
    api_version, kind, raw = unwrap(data)
    package = META if kind == "Status" else package
    return Typed(api_version, kind, find_class(f"{package}.{kind}").FromString(raw))


def make(api_version: str, package: str, kind: str, **metadata: Any) -> Typed:
    """Make an empty object with its metadata."""
    message = find_class(f"{package}.{kind}")()
    for name, value in metadata.items():
        if isinstance(value, dict):
            getattr(message.metadata, name).update(value)
        else:
            setattr(message.metadata, name, value)
    return Typed(api_version, kind, message)
