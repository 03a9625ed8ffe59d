"""
Timed connections: the open ones of one server, which are closed when their time is over, or when others need the room.

They cost as little as possible, as many of them can be there for nothing: all share one timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

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


class SharedTimer:
    """One timer for all: timers that are cancelled all the time cost more than what they are for."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self._deadline = 0.0
        """When it rings. Not all event loops can tell it: those of ``uvloop`` know whole milliseconds, if any."""

    def ring_at(self, deadline: float) -> None:
        """Call the function at that time of the event loop, or earlier if it is to be called earlier anyway."""
        if self._handle is not None:
            if self._deadline <= deadline:
                return
            self._handle.cancel()
        self._deadline = deadline
        self._handle = asyncio.get_running_loop().call_at(deadline, self._ring)

    def stop(self) -> None:
        """Do not call it."""
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        self._handle = None
        self._callback()


class TimedConnections:
    """The connections that are open now, in the running event loop."""

    def __init__(self, limit: int, *, opening_timeout: float, idle_timeout: float) -> None:
        """``limit`` is how many of them to keep; the times are in seconds."""
        self.limit = limit
        self._table: ConnectionTable[Connection] = ConnectionTable(limit)
        self._opening_timeout = opening_timeout
        self._idle_timeout = idle_timeout
        self.timer = SharedTimer(self._sweep)
        """Closes those whose time is over."""

    @property
    def is_full(self) -> bool:
        """Whether one has to go before another one comes."""
        return self._table.is_full

    @property
    def is_busy(self) -> bool:
        """Whether nobody can come, as nobody can go: with all of them, it is our turn."""
        return self._table.is_full and self._table.find_evictable() is None

    def add(self, connection: Connection) -> None:
        """Take notice of a new connection, and wait until it has sent the first headers."""
        deadline = asyncio.get_running_loop().time() + self._opening_timeout
        self._table.add(connection, deadline)
        self.timer.ring_at(deadline)

    def advance(self, connection: Connection, stage: Stage) -> bool:
        """Move the silent connection to another stage, with no more time; tell if it was not too late for that."""
        is_known = connection in self._table
        if is_known:
            self._table.advance(connection, stage)
        return is_known

    def engage(self, connection: Connection) -> None:
        """Take the turn, unless it was too late for that: the connection is not closed, however long it lasts."""
        if connection in self._table:
            self._table.engage(connection)

    def wait_for(self, connection: Connection, stage: Stage) -> None:
        """Wait for a while until the client does what it has to do at this stage, unless it was too late for that."""
        if connection in self._table:
            deadline = asyncio.get_running_loop().time() + self._idle_timeout + FAREWELL_TIMEOUT
            self._table.silence(connection, stage, deadline)
            self.timer.ring_at(deadline)

    def remove(self, connection: Connection) -> None:
        """Forget the connection, if it is known."""
        self._table.remove(connection)

    def drop(self, *connections: Connection) -> None:
        """Close them at once."""
        for connection in connections:
            self._table.remove(connection)
            connection.abort()

    def drop_oldest(self) -> None:
        """Close one for the sake of others, if there is anybody who can go."""
        if (connection := self._table.find_evictable()) is not None:
            self.drop(connection)

    def drop_mute(self) -> None:
        """Close those that have sent nothing."""
        self.drop(*self._table.list_mute())

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self.drop(*self._table.list_expired(now))
        if (deadline := self._table.get_deadline()) is not None:
            self.timer.ring_at(max(deadline, now + _SWEEP))
