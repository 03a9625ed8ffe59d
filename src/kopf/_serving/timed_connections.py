"""
Timed connections: the open ones of one server, which are closed when their time is over, or when others need the room.

They cost as little as possible, as many of them can be there for nothing: all share one timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from kopf._client.http.deadlines import SharedTimer
from kopf._serving.connections import ConnectionTable, Stage

FAREWELL_TIMEOUT = 1.0
"""How long the goodbye of TLS may take, in seconds."""

_SWEEP = 0.1
"""How often to close those whose time is over, at most, in seconds."""

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: nothing of the connection remains in the kernel either


class Connection:
    """One connection, from the moment it is accepted."""

    __slots__ = ("opening", "sock", "transport")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.opening: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Close it at once, whatever it is doing."""
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
    """The connections that are open now, in the running event loop."""

    def __init__(self, limit: int, *, opening_timeout: float, idle_timeout: float) -> None:
        """``limit`` is how many of them to keep; the times are in seconds."""
        self.table: ConnectionTable[Connection] = ConnectionTable(limit)
        """How far they have come."""
        self._opening_timeout = opening_timeout
        self._idle_timeout = idle_timeout
        self.timer = SharedTimer(self._sweep)
        """Closes those whose time is over."""

    def add(self, connection: Connection) -> None:
        """Take notice of a new connection, and wait until it has sent the first headers."""
        deadline = asyncio.get_running_loop().time() + self._opening_timeout
        self.table.add(connection, deadline)
        self.timer.ring_at(deadline)

    def wait_for(self, connection: Connection, stage: Stage) -> None:
        """Wait for a while until the client does what it has to do at this stage, unless it was too late for that."""
        deadline = asyncio.get_running_loop().time() + self._idle_timeout + FAREWELL_TIMEOUT
        self.table.silence(connection, stage, deadline)
        self.timer.ring_at(deadline)

    def drop(self, *connections: Connection) -> None:
        """Close them at once."""
        for connection in connections:
            self.table.remove(connection)
            connection.abort()

    def drop_oldest(self) -> None:
        """Close one for the sake of others, if there is anybody who can go."""
        if (connection := self.table.find_evictable()) is not None:
            self.drop(connection)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self.drop(*self.table.list_expired(now))
        if (deadline := self.table.get_deadline()) is not None:
            self.timer.ring_at(max(deadline, now + _SWEEP))
