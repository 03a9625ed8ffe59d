"""
Opening: from an accepted socket to a transport that speaks HTTP, with the TLS handshake in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from aiohttp.web_protocol import RequestHandler

from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.timed_connections import FAREWELL_TIMEOUT, Connection


class Opener:
    """Opens connections in the background. If it fails, it calls the function with the handler of the connection."""

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
