"""Links: the network between one replica and the API, which can be cut, silent, or slow."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import yaml

_CHUNK = 2**16


class Link:
    """A proxy of TCP for one replica; nobody else uses it."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.port = 0
        self.received = 0
        """How much the replica has received, in bytes."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut()

    def silence(self) -> None:
        """Let nothing through: no bytes, and no news of closed connections; new connections are accepted."""
        self._flows.clear()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        self._is_cut = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            await self._flows.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._server)
            pair = {writer, far_writer}
            self._writers |= pair
            try:
                await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer, counted=True))
            finally:
                self._writers -= pair
                for item in pair:
                    item.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False) -> None:
        while data := await reader.read(_CHUNK):
            await self._flows.wait()
            self.received += len(data) if counted else 0
            writer.write(data)
            await writer.drain()
        await self._flows.wait()
        writer.transport.abort()


def write_kubeconfig(source: pathlib.Path, target: pathlib.Path, port: int) -> None:
    """Write the same configuration for this link."""
    config = yaml.safe_load(source.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    target.write_text(yaml.safe_dump(config))
