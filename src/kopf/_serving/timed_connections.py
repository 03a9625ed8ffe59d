"""
Timed connections: the open connections of one server, which are closed after a time limit, or to make room for others.

They cost as little as possible, as attackers can open many: all connections share one timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from kopf._client.http.deadlines import SharedTimer
from kopf._serving.connections import ConnectionTable, Stage

FAREWELL_TIMEOUT = 1.0
"""The longest time of a TLS goodbye, in seconds."""

_SWEEP = 0.1
"""The shortest pause between two checks of the deadlines, in seconds."""

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the kernel forgets the connection, too


class Connection:
    """One connection, from its acceptance on."""

    __slots__ = ("opening", "sock", "transport")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.opening: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Close the connection at once, in any state."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
        else:
            asyncio.get_running_loop().remove_reader(self.sock)
            self.sock.close()


class TimedConnections:
    """The open connections of a server in the running event loop."""

    def __init__(self, limit: int, *, opening_timeout: float, idle_timeout: float) -> None:
        """``limit`` is the largest number of connections; the times are in seconds."""
        self.table: ConnectionTable[Connection] = ConnectionTable(limit)
        """The stages of the connections."""
        self._opening_timeout = opening_timeout
        self._idle_timeout = idle_timeout
        self.timer = SharedTimer(self._sweep)
        """Closes connections after their deadlines."""

    def add(self, connection: Connection) -> None:
        """Add a new connection, and wait for its first headers."""
        deadline = asyncio.get_running_loop().time() + self._opening_timeout
        self.table.add(connection, deadline)
        self.timer.ring_at(deadline)

    def wait_for(self, connection: Connection, stage: Stage) -> None:
        """Wait for the client at this stage, with a time limit, unless the connection is closed already."""
        deadline = asyncio.get_running_loop().time() + self._idle_timeout + FAREWELL_TIMEOUT
        self.table.silence(connection, stage, deadline)
        self.timer.ring_at(deadline)

    def drop(self, *connections: Connection) -> None:
        """Close the connections at once."""
        for connection in connections:
            self.table.remove(connection)
            connection.abort()

    def drop_oldest(self) -> None:
        """Close one connection to make room for others, if any is silent."""
        if (connection := self.table.find_evictable()) is not None:
            self.drop(connection)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self.drop(*self.table.list_expired(now))
        if (deadline := self.table.get_deadline()) is not None:
            self.timer.ring_at(max(deadline, now + _SWEEP))
