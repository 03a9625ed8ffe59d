"""
Plain HTTP/1.1 with pipelining: many requests are sent at once, and their answers are read in the same order.

The server handles the requests of one connection one after another, so that they happen in the order as sent.
It costs several times less than a real client, so that the server is what is tested, not the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from kopf.testing import LocalCluster

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Reply(NamedTuple):
    status: int
    body: bytes


class Pipeline:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._common = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"

    def encode(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """Make a request to be sent later."""
        kind = f"Content-Type: {content_type}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._common}{kind}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def send(self, requests: Sequence[bytes]) -> list[Reply]:
        """Send the requests at once, and give their answers."""
        self._writer.write(b"".join(requests))
        return [await self._read() for _ in requests]

    async def _read(self) -> Reply:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None:
            raise ValueError(f"an answer with no length: {head!r}")
        return Reply(int(head[9:12]), await self._reader.readexactly(int(length[1])))


@contextlib.asynccontextmanager
async def connect(cluster: LocalCluster) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a bare connection to the cluster: everything else is up to the caller."""
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    host, _, port = cluster.url.removeprefix("https://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def pipelined(cluster: LocalCluster) -> AsyncIterator[Pipeline]:
    async with connect(cluster) as (reader, writer):
        yield Pipeline(reader, writer, cluster.token)
