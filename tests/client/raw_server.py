"""
A server that sends bytes as they are, good or bad, and knows what its connections have become.

Every connection has its own play, the last one is repeated. After it, the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from kopf._client.http.direct_session import DirectSession
from kopf._client.http.server_address import parse_server
from kopf._client.http.transport import Limits, read_body
from tests.patience import PATIENCE

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
PATIENT = Limits(total=PATIENCE)
"""What hangs, fails."""


class RawServer:
    """Listens on the loopback."""

    def __init__(self, *plays: Play) -> None:
        self.url = ""
        self.accepted = 0
        """How many connections there were."""
        self._plays = plays
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serve(self, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context, backlog=2000)
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self.url
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        play = self._plays[min(self.accepted, len(self._plays) - 1)]
        self.accepted += 1
        task = asyncio.ensure_future(_play(play, reader, writer))
        self._tasks.add(task)


async def _play(play: Play, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        try:
            await play(reader, writer)
        finally:
            writer.close()
        await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a request; give its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return head, await reader.readexactly(int(length[0])) if length else b""


def answer(*responses: bytes) -> Play:
    """Answer a request with each of these, and wait for the client to leave."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await read_request(reader)
            writer.write(response)
            await writer.drain()
        await reader.read()

    return play


def answer_and_close(response: bytes) -> Play:
    """Answer one request, and close the connection."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response)
        await writer.drain()

    return play


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer all requests with their targets."""
    while True:
        head, _ = await read_request(reader)
        target = head.split(b" ")[1]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target))
        await writer.drain()


@contextlib.asynccontextmanager
async def opened(server: RawServer, context: ssl.SSLContext | None = None) -> AsyncIterator[DirectSession]:
    """Open a session with the server; all of its connections are closed in the end."""
    session = DirectSession(parse_server(server.url), {"Accept": "application/json"}, context)
    try:
        yield session
    finally:
        await session.close()
        assert not session._wires


async def fetch(
    session: DirectSession,
    target: str = "/x",
    method: str = "GET",
    body: bytes | None = None,
    limits: Limits = PATIENT,
) -> bytes:
    """Make a request, and give the body of the response."""
    async with session.request(method, target, body, None, limits) as response:
        return await read_body(response)
