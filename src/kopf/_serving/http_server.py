"""
HTTP server: what is open to everybody who can reach it, and is to be exhausted by nobody.

The connections that their clients keep waiting are limited in time and number: see :mod:`kopf._serving.connections`.
Those who only connect cost as little as possible, so that the queue of the kernel is short, and whoever comes next is
answered soon: nothing is made for a connection until something comes from there, and all of them share one timer.
Those who have said something are heard before others are accepted: nobody is thrown out because of our slowness.

Everything that is logged about the clients is limited in rate, as it is them who decide how much of it there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from kopf._serving.connections import ConnectionTable, Stage
from kopf._serving.limited_logs import RateLimitedLogger

logger = logging.getLogger(__name__)

OPENING_TIMEOUT = 5.0
"""How long a new connection may take until the first headers are there, in seconds, including the TLS handshake."""

FAREWELL_TIMEOUT = 1.0
"""How long the goodbye of TLS may take, in seconds."""

_BATCH = 32
"""How many connections to accept at once, at most: in about 1 ms, the others go on in between."""

_HEARING = 6
"""How many turns of the event loop it takes from the first packet of a client until it is known what is in there."""

_SWEEP = 0.1
"""How often to close those whose time is over, at most, in seconds."""

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


class _Connection:
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
        self._table: ConnectionTable[_Connection] = ConnectionTable(limit)
        self._batch = 1
        self._hearing = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._opening_timeout = opening_timeout
        self._idle_timeout = idle_timeout
        self._context: ssl.SSLContext | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._resumption: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._by_handler: dict[RequestHandler, _Connection] = {}
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
            # Two batches are fewer than the largest group, so nobody is pushed out before it is known if they speak.
            self._batch = max(1, min(_BATCH, self._limit // (16 * len(sockets))))
            self._resume()

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests, let the current ones finish for some time (seconds)."""
        self._hearing = 0
        for listener in self._listeners:
            self._accept(listener)
        self._stop_accepting()
        self._listeners = ()
        # What has come by now, is served; as well as what arrives at the connections that are not idle.
        for _ in range(6):
            await asyncio.sleep(0)
        for connection in self._table.list_mute():
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
        if self._sweeping is not None:
            self._sweeping.cancel()

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
        if connection is not None and connection in self._table:
            self._table.engage(connection)
        try:
            yield
        finally:
            if connection is not None and connection in self._table:
                self._wait_for(connection, Stage.REGULAR)

    def _accept(self, listener: socket.socket) -> None:
        if self._hearing > 0:  # it is called in each turn of the event loop as long as somebody waits there
            self._hearing -= 1
            return
        for _ in range(self._batch):
            if self._table.is_full and self._table.choose_victim() is None:
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
                self._drop_oldest()
                self._pause()
                return
            if self._table.is_full:
                self._warn_of_limit()
                self._drop_oldest()
            self._open(sock)

    def _open(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        connection = _Connection(sock)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._opening_timeout
        self._table.add(connection, deadline)
        self._sweep_at(deadline)
        loop.add_reader(sock, self._connect, connection)

    def _connect(self, connection: _Connection) -> None:
        """Begin to serve the connection, as something has come from there."""
        try:
            has_left = not connection.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # it was a false alarm
            return
        except OSError:
            has_left = True
        if has_left:
            self._drop(connection)
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(connection.sock)
        self._hearing = _HEARING * len(self._listeners)
        self._table.advance(connection, Stage.GREETING)
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
        if connection in self._table:
            self._table.advance(connection, Stage.STRANGER)
        else:  # it was too late
            transport.abort()

    def forget(self, handler: RequestHandler) -> None:
        """Take notice that the connection is closed."""
        connection = self._by_handler.pop(handler)
        self._table.remove(connection)
        if not self._by_handler:
            self._emptied.set()

    def _wait_for(self, connection: _Connection, stage: Stage) -> None:
        """Wait for a while until the client does what it has to do at this stage."""
        deadline = asyncio.get_running_loop().time() + self._idle_timeout + FAREWELL_TIMEOUT
        self._table.silence(connection, stage, deadline)
        self._sweep_at(deadline)

    def _sweep_at(self, deadline: float) -> None:
        """Have one timer for all: timers that are cancelled all the time cost more than what they are for."""
        if self._sweeping is not None:
            if self._sweeping.when() <= deadline:
                return
            self._sweeping.cancel()
        self._sweeping = asyncio.get_running_loop().call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in self._table.list_expired(now):
            self._drop(connection)
        if (deadline := self._table.get_deadline()) is not None:
            self._sweep_at(max(deadline, now + _SWEEP))

    def _drop(self, connection: _Connection) -> None:
        self._table.remove(connection)
        connection.abort()

    def _drop_oldest(self) -> None:
        if (connection := self._table.choose_victim()) is not None:
            self._drop(connection)

    def _warn_of_limit(self) -> None:
        self._logger.warning(
            "%s has %s connections, which is the limit; the oldest silent ones are closed.", self._title, self._limit
        )

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
        if (connection := self._by_handler.get(protocol)) is not None and connection in self._table:
            self._wait_for(connection, Stage.SENDER)
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
