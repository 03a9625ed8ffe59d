"""
The floor of a request: HTTP on bare ``asyncio``, parsed by ``httptools``, and nothing else.

Connections are kept and used again, bodies have their lengths; no timeouts, no retries, no streams, no proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast


class Wire(asyncio.Protocol):
    """One connection with one request at a time."""

    _transport: asyncio.WriteTransport
    _response: asyncio.Future[tuple[int, bytes]]

    def __init__(self, make_parser: Any) -> None:
        self._parser = make_parser(self)
        self._parts: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # those of uvloop do not say so

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("There is no response."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """The headers are parsed, as clients have to look into them."""

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        content = b"".join(self._parts)
        self._parts.clear()
        self._response.set_result((self._parser.get_status_code(), content))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send the request; get the status and the body."""
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._response

    def close(self) -> None:
        self._transport.close()


class Pool:
    """The connections to one server."""

    def __init__(self, url: str, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self._url = urllib.parse.urlsplit(url)
        lines = {"Host": self._url.netloc, **headers}.items()
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines)
        self._context = context
        self._make_parser = importlib.import_module("httptools").HttpResponseParser
        self._idle: list[Wire] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str, headers: Mapping[str, str], context: ssl.SSLContext | None) -> AsyncIterator[Pool]:
        """Open it for a while."""
        pool = cls(url, headers, context)
        try:
            yield pool
        finally:
            for wire in pool._idle:
                wire.close()

    async def request(self, method: str, path: str, body: bytes) -> bytes:
        """Make a request on any connection that is free, or on a new one."""
        wire = self._idle.pop() if self._idle else await self._connect()
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        status, content = await wire.ask(head.encode("ascii") + body)
        self._idle.append(wire)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {content.decode()}")
        return content

    async def _connect(self) -> Wire:
        host, port = self._url.hostname, self._url.port
        assert host is not None
        assert port is not None
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: Wire(self._make_parser), host, port, ssl=self._context)
        return wire
