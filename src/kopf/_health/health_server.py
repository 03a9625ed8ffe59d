"""
The server of the health: HTTP in a thread & an event loop of its own, so that it answers when the operator is blocked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kopf._health.endpoints import Endpoint
from kopf._serving.listening import open_sockets
from kopf._values.errors import OperatorError

if TYPE_CHECKING:
    from aiohttp import web

    from kopf._serving.http_server import HTTPServer

logger = logging.getLogger(__name__)

_EXIT_TIMEOUT = 0.1
"""How long the current requests may take when the server stops, in seconds."""

_MAX_CONNECTIONS = 256
"""Or fewer, where only few files may be open."""

_IDLE_TIMEOUT = 10.0
"""How long the reading of an answer may take, in seconds."""


class HealthServerError(OperatorError):
    """The health cannot be served there, e.g. because the port is occupied."""


class _Report(Protocol):
    @property
    def is_healthy(self) -> bool: ...

    @property
    def content(self) -> bytes: ...


class HealthServer:
    """Serves inside of the ``async with`` block; answers with 200 or 503."""

    def __init__(self, endpoint: Endpoint, report: Callable[[], Awaitable[_Report]]) -> None:
        self._endpoint = endpoint
        self._report = report
        self._thread = threading.Thread(target=self._run, name="kopf-health", daemon=True)
        self._started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self._thread.start()
        try:
            port = await asyncio.wrap_future(self._started)
        except OSError as e:
            self._thread.join()
            raise HealthServerError(f"The health cannot be served at {self._endpoint}: {e}") from e
        logger.debug("Serving the health at %s", self._endpoint._replace(port=port))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stopped is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.wrap_future(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as e:
            if self._started.done():
                logger.exception("The server of the health has failed: %s", e)
            else:
                self._started.set_exception(e)
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        from kopf._serving.http_server import HTTPServer, limit_connections  # most operators on a laptop need none

        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        sockets = open_sockets(self._endpoint.host, self._endpoint.port)
        server = HTTPServer(
            lambda request: self._handle(server, request),
            title="The health server",
            limit=limit_connections(most=_MAX_CONNECTIONS, share=8),
            idle_timeout=_IDLE_TIMEOUT,
            lingering_timeout=0,
        )
        try:
            server.listen(sockets)
            self._started.set_result(sockets[0].getsockname()[1])
            await self._stopped.wait()
        finally:
            await server.close(_EXIT_TIMEOUT)
            for sock in sockets:
                sock.close()

    async def _handle(self, server: HTTPServer, request: web.BaseRequest) -> web.Response:
        with server.serving(request):
            response = await self._answer(request)
        response.force_close()  # those who probe do not come again soon
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web  # it is loaded by now

        if request.path != self._endpoint.path:
            return web.Response(status=404, text="The health is not here.\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="The health is read-only.\n", headers={"Allow": "GET, HEAD"})
        report = await self._report()
        status = 200 if report.is_healthy else 503
        headers = {"Cache-Control": "no-store", "Content-Type": "application/json; charset=utf-8"}
        return web.Response(body=report.content, status=status, headers=headers)
