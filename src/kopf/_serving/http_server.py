"""
HTTP server: what is open to everybody who can reach it, and is to be exhausted by nobody.

A connection is silent if it is its client's turn: to finish the handshake, the request, or the reading of the response,
or to send the next request. Silent connections are closed in time. If there are too many of all, a silent one is closed
for each new one. There are three groups of them: those that have sent nothing at all (they have nothing but a socket),
those that have not finished their first request, and those that were served before. It is the oldest one of the largest
group that is closed: whichever group the attackers fill, the others are safe. The connections that are not silent are
never closed: if all are such, the new ones have to wait.

Everything that is logged about the clients is limited in rate, as it is them who decide how much of it there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import logging
import socket
import ssl
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

logger = logging.getLogger(__name__)

OPENING_TIMEOUT = 5.0
"""How long a new connection may take until the first headers are there, in seconds, including the TLS handshake."""

FAREWELL_TIMEOUT = 1.0
"""How long the goodbye of TLS may take, in seconds."""

_BATCH = 8
"""How many connections to accept at once: the others go on in between."""

_PAUSE = 0.1
"""For how long nothing is accepted if there is nothing to do it with, in seconds."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: nothing of the connection remains in the kernel either


def limit_connections(*, most: int, share: int) -> int:
    """Choose how many connections to keep: as many, but not more than 1/share of the files that may be open."""
    if sys.platform == "win32":  # it has no such limits
        return most
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(2, min(most, files // share))


class RateLimitedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs only a few messages of a kind in every interval (seconds), and counts the rest."""

    def __init__(self, logger: logging.Logger, *, burst: int, interval: float = 60.0) -> None:
        super().__init__(logger)
        self._burst = burst
        self._interval = interval
        self._seen: dict[object, tuple[float, int]] = {}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log it, unless there are too many like this."""
        if not self.isEnabledFor(level):
            return
        now = time.monotonic()
        since, count = self._seen.get(msg, (now, 0))
        text = msg
        if now - since >= self._interval:
            text = f"{msg} (And {count - self._burst} more like this.)" if count > self._burst else msg
            since, count = now, 0
        self._seen[msg] = (since, count + 1)
        if count < self._burst:
            super().log(level, text, *args, **kwargs)


class _Stage(enum.IntEnum):
    """How far the connection has come."""

    MUTE = 0
    STRANGER = 1
    REGULAR = 2


class _Connection:
    """One connection, from the moment it is accepted."""

    __slots__ = ("opening", "sock", "stage", "timer", "transport")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.stage = _Stage.MUTE
        self.opening: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None

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


class _TellingServer(web.Server):
    """The server of the library, which tells when its connections begin and end."""

    def __init__(self, owner: HTTPServer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner = owner

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._owner.accept_transport(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._owner.forget(handler)


class HTTPServer:
    """Accepts connections, and calls the function with the requests; the rest of the limits is up to the function."""

    def __init__(
        self,
        handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        title: str,
        limit: int,
        opening_timeout: float = OPENING_TIMEOUT,
        idle_timeout: float,
        lingering_timeout: float,
    ) -> None:
        """
        ``title`` is for the logs. ``limit`` is of connections. ``idle_timeout`` is how long to wait for the next
        request, ``lingering_timeout`` is how long to read what nobody needs, so that the client sees the response;
        all times are in seconds.
        """
        self._title = title
        self._logger = RateLimitedLogger(logger, burst=1)
        self._limit = limit
        self._opening_timeout = opening_timeout
        self._idle_timeout = idle_timeout
        self._context: ssl.SSLContext | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._resumption: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._by_handler: dict[RequestHandler, _Connection] = {}
        # By their stages; ordered by the time when they have come to them.
        self._silent: tuple[dict[_Connection, None], ...] = tuple({} for _ in _Stage)
        self._emptied = asyncio.Event()
        self._http = _TellingServer(
            self,
            handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            logger=RateLimitedLogger(_http_logger, burst=1),
            keepalive_timeout=idle_timeout,
            lingering_time=lingering_timeout,
            auto_decompress=False,
        )

    def listen(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None = None) -> None:
        """
        Accept connections from the sockets, with TLS if there is a context for it.

        It can be called again with another context: then new connections use it. None of them is refused meanwhile,
        and nothing changes for the current connections.
        """
        self._context = context
        if not self._listeners:
            self._listeners = tuple(sockets)
            self._resume()

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests, let the current ones finish for some time (seconds)."""
        for listener in self._listeners:
            self._accept(listener)
        self._stop_accepting()
        self._listeners = ()
        # What has come by now, is served; as well as what arrives at the connections that are not idle.
        for _ in range(6):
            await asyncio.sleep(0)
        for connection in [*self._silent[_Stage.MUTE]]:
            self._drop(connection)
        self._http.pre_shutdown()
        for _ in range(3):
            await asyncio.sleep(0)
        await self._http.shutdown(timeout)
        for task in self._opening:
            task.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        await self._wait_until_closed()

    async def _wait_until_closed(self) -> None:
        """Wait for the ends of all connections, as nobody else does: the event loop can be closed right after."""
        self._emptied.clear()
        if self._by_handler:
            with contextlib.suppress(TimeoutError):  # TLS has the same limit, and breaks what does not end by itself
                await asyncio.wait_for(self._emptied.wait(), FAREWELL_TIMEOUT + 1)
        for connection in self._by_handler.values():  # they do not read what is sent to them
            connection.abort()
        for _ in range(3):  # the transports are closed in the next iterations of the loop
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def serving(self, request: web.BaseRequest) -> Iterator[None]:
        """Mark the connection as not silent: the whole request is there, and it is our turn."""
        connection = self._by_handler.get(request.protocol)
        if connection is not None:
            self._mark_active(connection)
        try:
            yield
        finally:
            if connection is not None and connection in self._connections:
                self._mark_silent(connection, _Stage.REGULAR, self._idle_timeout + FAREWELL_TIMEOUT)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                if len(self._connections) > self._limit and not any(self._silent):
                    self._pause()
                    return
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                if e.errno not in _EXHAUSTED:
                    raise
                self._logger.warning("%s cannot accept connections for a moment: %s", self._title, e)
                self._drop_oldest()
                self._pause()
                return
            is_full = len(self._connections) >= self._limit and not self._make_room()
            self._open(sock)
            if is_full:  # this one is the last one for a while
                self._pause()
                return

    def _open(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        connection = _Connection(sock)
        self._connections.add(connection)
        self._mark_silent(connection, _Stage.MUTE, self._opening_timeout)
        asyncio.get_running_loop().add_reader(sock, self._connect, connection)

    def _connect(self, connection: _Connection) -> None:
        """Begin to serve the connection, as something has come from there."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(connection.sock)
        self._silent[connection.stage].pop(connection)  # with the same timer
        connection.stage = _Stage.STRANGER
        self._silent[connection.stage][connection] = None
        handler = self._http()
        self._by_handler[handler] = connection
        connection.opening = task = loop.create_task(self._make_transport(handler, connection))
        self._opening.add(task)
        task.add_done_callback(lambda task: self._finish_opening(task, handler, connection))

    async def _make_transport(self, handler: RequestHandler, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        timeout = None if self._context is None else FAREWELL_TIMEOUT
        try:
            await loop.connect_accepted_socket(
                lambda: handler, connection.sock, ssl=self._context, ssl_shutdown_timeout=timeout
            )
        except OSError as e:  # those of TLS, too
            self._logger.debug("%s could not open a connection: %r", self._title, e)

    def _finish_opening(self, task: asyncio.Task[None], handler: RequestHandler, connection: _Connection) -> None:
        self._opening.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("%s could not open a connection.", self._title, exc_info=error)
        if connection.transport is None:  # it has not come to a transport that would close it
            connection.sock.close()
            self.forget(handler)

    def accept_transport(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take notice that the connection is open, with the TLS handshake."""
        connection = self._by_handler[handler]
        connection.transport = transport
        if connection not in self._connections:  # it was too late
            transport.abort()

    def forget(self, handler: RequestHandler) -> None:
        """Take notice that the connection is closed."""
        connection = self._by_handler.pop(handler)
        self._connections.discard(connection)
        self._mark_active(connection)
        if not self._by_handler:
            self._emptied.set()

    def _mark_silent(self, connection: _Connection, stage: _Stage, timeout: float) -> None:
        self._mark_active(connection)
        connection.stage = stage
        self._silent[stage][connection] = None
        connection.timer = asyncio.get_running_loop().call_later(timeout, self._drop, connection)

    def _mark_active(self, connection: _Connection) -> None:
        self._silent[connection.stage].pop(connection, None)
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._mark_active(connection)
        connection.abort()

    def _drop_oldest(self) -> bool:
        largest = max(self._silent, key=len)
        for connection in largest:
            self._drop(connection)
            return True
        return False

    def _make_room(self) -> bool:
        self._logger.warning(
            "%s has %s connections, which is the limit; the oldest silent ones are closed.", self._title, self._limit
        )
        return self._drop_oldest()

    def _pause(self) -> None:
        self._stop_accepting()
        self._resumption = asyncio.get_running_loop().call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)

    def _stop_accepting(self) -> None:
        if self._resumption is not None:
            self._resumption.cancel()
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)

    def _make_request(
        self, message: Any, payload: Any, protocol: RequestHandler, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        """Take notice of the headers: who has sent them has got more time, for the rest of the request."""
        if (connection := self._by_handler.get(protocol)) is not None and connection in self._connections:
            self._mark_silent(connection, connection.stage, self._idle_timeout + FAREWELL_TIMEOUT)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=0)


class _Silence(logging.Filter):
    """Keeps tracebacks out of the log if it is only that somebody does not speak HTTP."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            logger.debug("A request is refused, as it is not HTTP: %s", type(error).__name__)
            return False
        return True


_http_logger = logging.getLogger(f"{__name__}.protocol")
_http_logger.addFilter(_Silence())
