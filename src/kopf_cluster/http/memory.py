"""
Connections in memory: HTTP between a client and the server in one event loop, with no sockets and no TLS.

All the rest is real: the same client library, the same bytes, the same server. Bytes arrive in the next turns of the
loop, always in the same order, so that runs can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import HIGH_LEVEL_SCHEMA_SET

from kopf_cluster.http.shortcuts import Ask, ShortcutSession

_HIGH_WATER: Final = 256 * 1024
"""The number of bytes underway at which the sender must pause."""
_LOW_WATER: Final = 64 * 1024
"""The number of bytes underway at which the sender may continue."""

Accept = Callable[[], asyncio.Protocol]
"""Returns the server side of a new connection, or raises `ConnectionRefusedError` if there is no server."""


class MemoryNetwork:
    """The connections of one client: they can be interrupted for a while, or broken for good.

    * ``accept``: returns the server side of a connection.
    * ``find_ask``: returns the way to make requests without a connection, if the server is there.
    """

    def __init__(self, accept: Accept, find_ask: Callable[[], Ask | None]) -> None:
        self._accept = accept
        self._find_ask = find_ask
        self._ends: dict[_End, None] = {}  # ordered, so that they go on in the same order every time
        self._passable = asyncio.Event()
        self._passable.set()
        self._dead = False

    @property
    def is_cut(self) -> bool:
        return not self._passable.is_set()

    def cut(self) -> None:
        """Hold all bytes in both directions without errors; they arrive after `mend`, as in TCP."""
        self._passable.clear()

    def mend(self) -> None:
        """Deliver all bytes again."""
        self._passable.set()
        for end in self._ends:
            end.pump_soon()

    def sever(self) -> None:
        """Break all connections for good, as if the process of the client was killed; sent bytes still arrive."""
        self._dead = True
        for end in list(self._ends):
            if end.is_client:
                end.vanish()

    def make_connector(self) -> aiohttp.BaseConnector:
        """Return the connector for a session of the client, which keeps its connections as long as it lives."""
        return _Connector(self)

    def shorten(self, session: aiohttp.ClientSession) -> ShortcutSession:
        """Return the session with a shortcut for its usual requests."""
        return ShortcutSession(session, self)

    def find_shortcut(self) -> Ask | None:
        """Return the way to make requests without a connection, if the result is the same; otherwise none."""
        return None if self._dead or self.is_cut else self._find_ask()

    async def pass_back(self) -> None:
        """Wait until an answer can arrive: forever, if the client is dead."""
        await self._passable.wait()
        if self._dead:
            await asyncio.get_running_loop().create_future()

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Open a connection."""
        await self.pass_back()
        here, there = contextvars.copy_context(), contextvars.Context()  # the server is not a part of the client
        client, server = make_protocol(), there.run(self._accept)
        near, far = _End(self, client, here, is_client=True), _End(self, server, there, is_client=False)
        near.peer, far.peer = far, near
        self._ends |= {near: None, far: None}
        there.run(server.connection_made, far)
        client.connection_made(near)
        return client

    def forget(self, end: _End) -> None:
        self._ends.pop(end, None)


class _End(asyncio.Transport):
    """One end of a connection, the transport of its protocol: it receives the bytes of the other end."""

    peer: _End

    def __init__(
        self,
        network: MemoryNetwork,
        protocol: asyncio.Protocol,
        context: contextvars.Context,
        *,
        is_client: bool,
    ) -> None:
        super().__init__({"peername": ("memory", 0)})
        self.is_client = is_client
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._network = network
        self._protocol = protocol
        self._incoming: collections.deque[bytes] = collections.deque()
        self._waiting = 0  # the number of undelivered bytes
        self._ended = False  # nothing more will come
        self._reading = True
        self._closing = False
        self._lost = False
        self._deaf = False
        self._scheduled = False
        self._holding = False  # our protocol has paused writing

    # The interface for protocols.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing or self._deaf or not data:
            return
        self.peer.take(bytes(data))
        if self.peer._waiting > _HIGH_WATER and not self._holding:
            self._holding = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.pump_soon()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if not isinstance(protocol, asyncio.Protocol):
            raise TypeError(f"{protocol!r} takes no bytes")
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self.peer._waiting

    def close(self) -> None:
        """Receive nothing more; the other end learns that after all sent bytes."""
        if not self._closing:
            self._lose(None)
            if not self._deaf:
                self.peer.end()

    def abort(self) -> None:
        """Break the connection at once, for both."""
        if not self._closing:
            self._lose(None)
            if not self._deaf:
                self.peer._lose(ConnectionResetError("the connection is broken"))

    def vanish(self) -> None:
        """Deliver nothing to the protocol any more; the other end learns that the connection has ended."""
        self._deaf = True
        self._incoming.clear()
        self.peer.end()

    # The interface for the other end.

    def take(self, data: bytes) -> None:
        self._incoming.append(data)
        self._waiting += len(data)
        self.pump_soon()

    def end(self) -> None:
        self._ended = True
        self.pump_soon()

    def pump_soon(self) -> None:
        if not self._scheduled and not self._lost:
            self._scheduled = True
            self._loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        """Deliver the received bytes, if the protocol reads, and if the network is not cut."""
        self._scheduled = False
        if self._closing or self._deaf or not self._reading or self._network.is_cut:
            return
        if self._incoming:
            data = b"".join(self._incoming)
            self._incoming.clear()
            self._waiting = 0
            self._protocol.data_received(data)
            self.peer.go_on()
        if self._ended and not self._incoming and not self._closing:
            self._protocol.eof_received()
            self._lose(None)

    def go_on(self) -> None:
        if self._holding and self.peer._waiting <= _LOW_WATER and not self._lost:
            self._holding = False
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._incoming.clear()
            self._waiting = 0
            self._loop.call_soon(self._tell_of_loss, error, context=self._context)

    def _tell_of_loss(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._network.forget(self)
            self._protocol.connection_lost(error)


class _Connector(aiohttp.BaseConnector):
    """Sends the requests of a session to the network in memory, for any host."""

    allowed_protocol_schema_set = HIGH_LEVEL_SCHEMA_SET

    def __init__(self, network: MemoryNetwork) -> None:
        # Idle connections would be looked for every few seconds of a clock that jumps by hours.
        super().__init__(keepalive_timeout=10**9, limit=0)
        self._network = network

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: Any,
        timeout: aiohttp.ClientTimeout,
    ) -> ResponseHandler:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                protocol = await self._network.connect(self._factory)
        except ConnectionRefusedError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {req.url}") from error
        if not isinstance(protocol, ResponseHandler):
            raise TypeError("the connection is not made by this connector")
        return protocol
