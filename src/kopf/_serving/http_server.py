"""
The HTTP server, which is open to any client, and which no client can exhaust.

Connections that wait for their clients are limited in time and number: see :mod:`kopf._serving.connections`. Clients
that only connect cost as little as possible: the server allocates nothing for them until they send something.

The life of a connection: it is accepted (:mod:`~kopf._serving.accepting`), opened, and serves requests. All that time,
it is one of the :mod:`~kopf._serving.timed_connections`.

Log messages about clients are limited in rate, as clients could cause any number.
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
"""The time limit of a new connection until its first headers, in seconds, including the TLS handshake."""


class Opener:
    """
    Turns accepted sockets into transports for HTTP, with or without TLS, in the background.

    After a failure, it calls the function with the handler of the connection.
    """

    def __init__(self, on_failure: Callable[[RequestHandler], None], *, title: str, logger: RateLimitedLogger) -> None:
        """``title`` is the name of the server in the logs."""
        self._on_failure = on_failure
        self._title = title
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self.context: ssl.SSLContext | None = None
        """The TLS context of new connections; ``None`` means no TLS."""

    def open(self, handler: RequestHandler, connection: Connection) -> None:
        """Begin to open the connection. The handler is notified when it is open."""
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
        except OSError as e:  # TLS errors, too
            self._logger.debug("%s could not open a connection: %r", self._title, e)

    def _finish(self, task: asyncio.Task[None], handler: RequestHandler, connection: Connection) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("%s could not open a connection.", self._title, exc_info=error)
        if connection.transport is None:  # there is no transport that would close it
            connection.sock.close()
            self._on_failure(handler)

    async def cancel(self) -> None:
        """Cancel the opening of connections."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def limit_connections(*, most: int, share: int) -> int:
    """Limit the number of connections to ``most``, and to one ``share``-th of the files that may be open."""
    if sys.platform == "win32":  # without such limits
        return most
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(2, min(most, files // share))


class _TellingServer(web.Server):
    """The server of the library, which notifies its owner when connections begin and end."""

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
    """Accepts connections, and calls the function with the requests. All limits of requests are up to the function."""

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
        ``title`` is for the logs. ``limit`` is the largest number of connections. ``idle_timeout`` is the longest
        wait for the next request. ``lingering_timeout`` is the longest time to read the rest of a request that nobody
        needs, so that the client sees the response. All times are in seconds.
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
        Accept connections from the sockets, with TLS if there is a context.

        After another call with another context, new connections use that one. Meanwhile, no connection is refused, and
        nothing changes for the current connections.
        """
        self._opener.context = context
        self._acceptor.listen(sockets)

    async def close(self, timeout: float) -> None:
        """Stop accepting connections and requests. Let the current ones finish until the timeout, in seconds."""
        self._acceptor.close()
        # Requests that have come by now are served, and new ones on connections that are not idle.
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
        """Wait for the ends of all connections: the event loop can be closed right afterwards."""
        self._emptied.clear()
        if self._by_handler:
            with contextlib.suppress(TimeoutError):  # TLS has the same limit, and then breaks connections
                async with asyncio.timeout(FAREWELL_TIMEOUT + 1):
                    await self._emptied.wait()
        for connection in self._by_handler.values():  # the clients do not read the responses
            connection.abort()
        for _ in range(3):  # the transports are closed in the next iterations of the loop
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def serving(self, request: web.BaseRequest) -> Iterator[None]:
        """Mark the connection as not silent: the request is complete, and the client waits for the server."""
        connection = self._by_handler.get(request.protocol)
        if connection is not None:
            self._connections.table.engage(connection)
        try:
            yield
        finally:
            if connection is not None:
                self._connections.wait_for(connection, Stage.REGULAR)

    def _open(self, sock: socket.socket) -> None:
        """Wait until the client sends something: until then, nothing else is allocated for the connection."""
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections.add(connection)
        asyncio.get_running_loop().add_reader(sock, self._connect, connection)

    def _connect(self, connection: Connection) -> None:
        """Begin to serve the connection, as the client has sent something."""
        try:
            has_left = not connection.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # a false alarm
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
        """Note that the connection is open, and its TLS handshake is complete."""
        connection = self._by_handler[handler]
        connection.transport = transport
        if not self._connections.table.advance(connection, Stage.STRANGER):  # too late
            transport.abort()

    def forget(self, handler: RequestHandler) -> None:
        """Note that the connection is closed."""
        connection = self._by_handler.pop(handler)
        self._connections.table.remove(connection)
        if not self._by_handler:
            self._emptied.set()

    def _make_request(
        self, message: Any, payload: Any, protocol: RequestHandler, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        """Note the headers of a request: the client gets more time for the rest."""
        if (connection := self._by_handler.get(protocol)) is not None:
            self._connections.wait_for(connection, Stage.SENDER)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=0)


class _Silence(logging.Filter):
    """Keeps tracebacks of clients that do not speak HTTP out of the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            logger.debug("A request is refused, as it is not HTTP: %s", type(error).__name__)
            return False
        return True


_http_logger = logging.getLogger(f"{__name__}.protocol")
_http_logger.addFilter(_Silence())
