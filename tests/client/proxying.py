"""
Real proxies, as small as they can be: HTTP ones with ``CONNECT`` (RFC 9110) and SOCKS5 ones (RFC 1928 & 1929).

They remember whom they were asked to connect to, and connect to where the names point in ``hosts``, if they do:
names that only the proxy can resolve are what proxies are for.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping

import yarl


class Proxy(abc.ABC):
    """What all proxies have in common: they join two streams, and leave nothing behind."""

    scheme: str

    def __init__(self, hosts: Mapping[str, str] | None = None, credentials: tuple[str, str] | None = None) -> None:
        self.requests: list[str] = []
        """Whom they were asked for: ``host:port``."""
        self.url = ""
        self._hosts = hosts or {}
        self._credentials = credentials
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serve(self, context: ssl.SSLContext | None = None, *, port: int | None = None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port or 0, ssl=context)
        auth = f"{self._credentials[0]}:{self._credentials[1]}@" if self._credentials else ""
        scheme = "https" if context is not None else self.scheme
        self.url = f"{scheme}://{auth}127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve_one(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # either side may leave at any time
        finally:
            writer.transport.abort()

    @abc.abstractmethod
    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Find out whom the client wants, and join the two."""

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.requests.append(f"{host}:{port}")
        return await asyncio.open_connection(self._hosts.get(host, host), port)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        tasks = [asyncio.create_task(_copy(*pair)) for pair in ((reader, server_writer), (server_reader, writer))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.transport.abort()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class HttpProxy(Proxy):
    """``CONNECT host:port`` for TLS, and absolute URLs for plain HTTP."""

    scheme = "http"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.partition(b"\r\n")[0].decode().split(" ")
        if not self._is_permitted(head):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        address = target if method == "CONNECT" else target.removeprefix("http://").partition("/")[0]
        host, _, port = address.rpartition(":")
        streams = await self._connect(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            streams[1].write(head)
        await self._join(reader, writer, *streams)

    def _is_permitted(self, head: bytes) -> bool:
        if self._credentials is None:
            return True
        pair = base64.b64encode(":".join(self._credentials).encode())
        return b"proxy-authorization: basic " + pair.lower() in head.lower()


class SocksProxy(Proxy):
    """Version 5: the method of authentication, the authentication, the request, and then the data."""

    scheme = "socks5"

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 0 if self._credentials is None else 2
        assert method in methods
        writer.write(bytes([5, method]))
        if self._credentials is not None:
            pair = await self._read_credentials(reader)
            writer.write(bytes([1, 0 if pair == self._credentials else 1]))
            if pair != self._credentials:
                await writer.drain()
                return
        _, command, _, kind = await reader.readexactly(4)
        assert command == 1
        host = await self._read_host(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
        try:
            streams = await self._connect(host, port)
        except OSError:
            writer.write(bytes([5, 4, 0, 1, 0, 0, 0, 0, 0, 0]))  # host unreachable
            await writer.drain()
            return
        writer.write(bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        await self._join(reader, writer, *streams)

    async def _read_credentials(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        await reader.readexactly(1)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        return name.decode(), password.decode()

    async def _read_host(self, reader: asyncio.StreamReader, kind: int) -> str:
        if kind == 1:
            return ".".join(str(part) for part in await reader.readexactly(4))
        assert kind == 3
        return (await reader.readexactly((await reader.readexactly(1))[0])).decode()


class TlsRelay(Proxy):
    """Not a proxy that clients know of, but the server for them, with its own certificate: a load balancer."""

    scheme = "https"

    def __init__(self, server: str, ca_data: bytes) -> None:
        super().__init__()
        self._server = yarl.URL(server)
        self._context = ssl.create_default_context(cadata=ca_data.decode())

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = await asyncio.open_connection(self._server.host, self._server.port, ssl=self._context)
        await self._join(reader, writer, *streams)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
