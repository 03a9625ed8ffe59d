"""
Accepting: how many new connections to accept at once, and when to pause.

The queue of the kernel must stay short, so that the next clients get a response soon. But the server reads from the
clients that have sent something before it accepts others, so that its own slowness evicts nobody.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence

from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.timed_connections import TimedConnections

_BATCH = 32
"""The largest number of connections to accept at once: it takes about 1 ms, then the others continue."""

_HEARING = 6
"""The number of turns of the event loop from the first packet of a client until its content is known."""

_PAUSE = 0.1
"""The pause in accepting when the system has no resources left, in seconds."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts connections, and passes their sockets to a function. If there are too many, it closes the oldest ones."""

    def __init__(
        self,
        connections: TimedConnections,
        open: Callable[[socket.socket], None],
        *,
        title: str,
        logger: RateLimitedLogger,
    ) -> None:
        """``title`` is the name of the server in the logs."""
        self._connections = connections
        self._open = open
        self._title = title
        self._logger = logger
        self._batch = 1
        self._hearing = 0
        self._listeners: Sequence[socket.socket] = ()
        self._resumption: asyncio.TimerHandle | None = None

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from these sockets from now on. Repeated calls change nothing."""
        if not self._listeners:
            self._listeners = tuple(sockets)
            # Two batches are smaller than the largest group, so nobody is evicted before they could send anything.
            self._batch = max(1, min(_BATCH, self._connections.table.limit // (16 * len(sockets))))
            self._resume()

    def hear_out(self) -> None:
        """Pause accepting until the content of a first packet is known."""
        self._hearing = _HEARING * len(self._listeners)

    def close(self) -> None:
        """Accept the clients that wait already, and nobody afterwards."""
        self._hearing = 0
        for listener in self._listeners:
            self._accept(listener)
        self._stop()
        self._listeners = ()

    def _accept(self, listener: socket.socket) -> None:
        if self._hearing > 0:  # called in each turn of the event loop while clients wait
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
