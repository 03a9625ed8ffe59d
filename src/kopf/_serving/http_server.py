"""
HTTP server: what is open to everybody who can reach it, and is to be exhausted by nobody.

The connections that their clients keep waiting are limited in time and number: see :mod:`kopf._serving.connections`.
Those who only connect cost as little as possible: nothing is made for a connection until something comes from there.

The life of a connection: it is accepted (:mod:`~kopf._serving.accepting`), opened, and then, there are the requests;
all that time, it is among :mod:`~kopf._serving.timed_connections`.

Everything that is logged about the clients is limited in rate, as it is them who decide how much of it there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from kopf._serving.accepting import Acceptor
from kopf._serving.connections import Stage
from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.timed_connections import FAREWELL_TIMEOUT, Connection, TimedConnections

logger = logging.getLogger(__name__)

OPENING_TIMEOUT = 5.0
"""How long a new connection may take until the first headers are there, in seconds, including the TLS handshake."""


class Opener:
    """
    Makes transports that speak HTTP of accepted sockets, with TLS in between, in the background.

    If it fails, it calls the function with the handler of the connection.
    """

    def __init__(self, on_failure: Callable[[RequestHandler], None], *, title: str, logger: RateLimitedLogger) -> None:
        """``title`` is of the server, for the logs."""
        self._on_failure = on_failure
        self._title = title
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self.context: ssl.SSLContext | None = None
        """What new connections use; ``None`` is for no TLS."""

    def open(self, handler: RequestHandler, connection: Connection) -> None:
        """Begin to open the connection; the handler is told when it is open."""
        connection.opening = task = asyncio.get_running_loop().create_task(self._make_transport(handler, connection))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._finish(task, handler, connection))

    async def _make_transport(self, handler: RequestHandler, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        timeout = None if self.context is None else FAREWELL_TIMEOUT
        try:
            await loop.connect_accepted_socket(
                lambda: handler, connection.sock, ssl=self.context, ssl_shutdown_timeout=timeout
            )
        except OSError as e:  # those of TLS, too
            self._logger.debug("%s could not open a connection: %r", self._title, e)

    def _finish(self, task: asyncio.Task[None], handler: RequestHandler, connection: Connection) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("%s could not open a connection.", self._title, exc_info=error)
        if connection.transport is None:  # it has not come to a transport that would close it
            connection.sock.close()
            self._on_failure(handler)

    async def cancel(self) -> None:
        """Give up those that are not open yet."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def limit_connections(*, most: int, share: int) -> int:
    """Choose how many connections to keep: as many, but not more than 1/share of the files that may be open."""
    if sys.platform == "win32":  # it has no such limits
        return most
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(2, min(most, files // share))


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
        limited = RateLimitedLogger(logger, burst=1)
        self._connections = TimedConnections(limit, opening_timeout=opening_timeout, idle_timeout=idle_timeout)
        self._acceptor = Acceptor(self._connections, self._open, title=title, logger=limited)
        self._opener = Opener(self.forget, title=title, logger=limited)
        self._by_handler: dict[RequestHandler, Connection] = {}
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
        self._opener.context = context
        self._acceptor.listen(sockets)

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests, let the current ones finish for some time (seconds)."""
        self._acceptor.close()
        # What has come by now, is served; as well as what arrives at the connections that are not idle.
        for _ in range(6):
            await asyncio.sleep(0)
        self._connections.drop(*self._connections.table.list_mute())
        self._http.pre_shutdown()
        for _ in range(3):
            await asyncio.sleep(0)
        await self._http.shutdown(timeout)
        await self._opener.cancel()
        await self._wait_until_closed()
        self._connections.timer.stop()

    async def _wait_until_closed(self) -> None:
        """Wait for the ends of all connections, as nobody else does: the event loop can be closed right after."""
        self._emptied.clear()
        if self._by_handler:
            with contextlib.suppress(TimeoutError):  # TLS has the same limit, and breaks what does not end by itself
                async with asyncio.timeout(FAREWELL_TIMEOUT + 1):
                    await self._emptied.wait()
        for connection in self._by_handler.values():  # they do not read what is sent to them
            connection.abort()
        for _ in range(3):  # the transports are closed in the next iterations of the loop
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def serving(self, request: web.BaseRequest) -> Iterator[None]:
        """Mark the connection as not silent: the whole request is there, and it is our turn."""
        connection = self._by_handler.get(request.protocol)
        if connection is not None:
            self._connections.table.engage(connection)
        try:
            yield
        finally:
            if connection is not None:
                self._connections.wait_for(connection, Stage.REGULAR)

    def _open(self, sock: socket.socket) -> None:
        """Wait until something comes from there: nothing else is made for the connection before that."""
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections.add(connection)
        asyncio.get_running_loop().add_reader(sock, self._connect, connection)

    def _connect(self, connection: Connection) -> None:
        """Begin to serve the connection, as something has come from there."""
        try:
            has_left = not connection.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # it was a false alarm
            return
        except OSError:
            has_left = True
        if has_left:
            self._connections.drop(connection)
            return
        asyncio.get_running_loop().remove_reader(connection.sock)
        self._acceptor.hear_out()
        self._connections.table.advance(connection, Stage.GREETING)
        handler = self._http()
        self._by_handler[handler] = connection
        self._opener.open(handler, connection)

    def accept_transport(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take notice that the connection is open, with the TLS handshake."""
        connection = self._by_handler[handler]
        connection.transport = transport
        if not self._connections.table.advance(connection, Stage.STRANGER):  # it was too late
            transport.abort()

    def forget(self, handler: RequestHandler) -> None:
        """Take notice that the connection is closed."""
        connection = self._by_handler.pop(handler)
        self._connections.table.remove(connection)
        if not self._by_handler:
            self._emptied.set()

    def _make_request(
        self, message: Any, payload: Any, protocol: RequestHandler, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        """Take notice of the headers: who has sent them has got more time, for the rest of the request."""
        if (connection := self._by_handler.get(protocol)) is not None:
            self._connections.wait_for(connection, Stage.SENDER)
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
