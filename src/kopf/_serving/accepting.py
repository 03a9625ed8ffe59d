"""
Accepting: how many new connections to take at once, and when not to.

The queue of the kernel is to be short, so that whoever comes next is answered soon. But those who have said something
are heard before others are accepted: nobody is thrown out because of our slowness.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.timed_connections import TimedConnections

_BATCH = 32
"""How many connections to accept at once, at most: in about 1 ms, the others go on in between."""

_HEARING = 6
"""How many turns of the event loop it takes from the first packet of a client until it is known what is in there."""

_PAUSE = 0.1
"""For how long nothing is accepted if there is nothing to do it with, in seconds."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts connections, and calls the function with their sockets; if there are too many, the oldest ones go."""

    def __init__(
        self,
        connections: TimedConnections,
        open: Callable[[socket.socket], None],
        *,
        title: str,
        logger: RateLimitedLogger,
    ) -> None:
        """``title`` is of the server, for the logs."""
        self._connections = connections
        self._open = open
        self._title = title
        self._logger = logger
        self._batch = 1
        self._hearing = 0
        self._listeners: Sequence[socket.socket] = ()
        self._resumption: asyncio.TimerHandle | None = None

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from these sockets from now on; once it is done, nothing changes."""
        if not self._listeners:
            self._listeners = tuple(sockets)
            # Two batches are fewer than the largest group, so nobody is pushed out before it is known if they speak.
            self._batch = max(1, min(_BATCH, self._connections.table.limit // (16 * len(sockets))))
            self._resume()

    def hear_out(self) -> None:
        """Accept nobody until it is known what somebody has begun to say."""
        self._hearing = _HEARING * len(self._listeners)

    def close(self) -> None:
        """Accept those who wait there, and nobody after that."""
        self._hearing = 0
        for listener in self._listeners:
            self._accept(listener)
        self._stop()
        self._listeners = ()

    def _accept(self, listener: socket.socket) -> None:
        if self._hearing > 0:  # it is called in each turn of the event loop as long as somebody waits there
            self._hearing -= 1
            return
        for _ in range(self._batch):
            if self._connections.table.is_busy:
                self._warn_of_limit()
                self._pause()
                return
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                if e.errno not in _EXHAUSTED:
                    raise
                self._logger.warning("%s cannot accept connections for a moment: %s", self._title, e)
                self._connections.drop_oldest()
                self._pause()
                return
            if self._connections.table.is_full:
                self._warn_of_limit()
                self._connections.drop_oldest()
            self._open(sock)

    def _warn_of_limit(self) -> None:
        self._logger.warning(
            "%s has %s connections, which is the limit; the oldest silent ones are closed.",
            self._title,
            self._connections.table.limit,
        )

    def _pause(self) -> None:
        self._stop()
        self._resumption = asyncio.get_running_loop().call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)

    def _stop(self) -> None:
        if self._resumption is not None:
            self._resumption.cancel()
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
