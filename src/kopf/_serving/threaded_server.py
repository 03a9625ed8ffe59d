"""
The threaded server: HTTP in a thread and an event loop of its own, so that it responds if the operator is blocked.

It serves external observers of the operator: probes, scrapers, people.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web

from kopf._serving.endpoints import READING, Endpoint
from kopf._serving.http_server import HTTPServer, limit_connections
from kopf._serving.listening import open_sockets
from kopf._values.operator_error import OperatorError

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""A function that responds to requests."""

logger = logging.getLogger(__name__)

_EXIT_TIMEOUT = 0.1
"""The time for the current requests when the server stops, in seconds."""

_MAX_CONNECTIONS = 256
"""The limit is lower where only few files may be open."""

_IDLE_TIMEOUT = 10.0
"""The longest time for a client to read a response, in seconds."""


class ServingError(OperatorError):
    """The server cannot listen there, e.g. because the port is in use."""


class ThreadedServer:
    """
    Serves inside of the ``async with`` block. ``answer`` is called in the event loop of the server.

    ``subject`` is the name of the served thing with its article, e.g. "the health", for messages.
    """

    def __init__(self, endpoint: Endpoint, answer: Answer, *, subject: str) -> None:
        self._endpoint = endpoint
        self._answer = answer
        self._subject = subject
        self._started: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"kopf-{subject.split()[-1]}", daemon=True)

    @property
    def endpoint(self) -> Endpoint:
        """The address with the actual port, once the server listens."""
        return self._endpoint._replace(port=self._started.result(timeout=0))

    async def __aenter__(self) -> Self:
        self._thread.start()
        started = asyncio.wrap_future(self._started)
        try:
            await asyncio.shield(started)
        except asyncio.CancelledError:
            await asyncio.wait([started])  # it takes a moment; then the port is free again
            if started.exception() is None:
                await self.__aexit__(None, None, None)
            raise
        except OSError as e:
            self._thread.join()
            subject = self._subject[:1].upper() + self._subject[1:]
            raise ServingError(f"{subject} cannot be served at {self._endpoint}: {e}") from e
        logger.debug("Serving %s at %s", self._subject, self.endpoint)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.wrap_future(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as e:
            if self._started.done():
                logger.exception("The server of %s has failed: %s", self._subject, e)
            else:
                self._started.set_exception(e)
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        sockets = open_sockets(self._endpoint.host, self._endpoint.port)
        server = HTTPServer(
            lambda request: self._handle(server, request),
            title=f"The {self._subject.split()[-1]} server",
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

    async def _handle(self, server: HTTPServer, request: web.BaseRequest) -> web.StreamResponse:
        with server.serving(request):
            response = await self._answer(request)
        response.force_close()  # such clients do not come again soon
        return response


class ReadOnlyServer(ThreadedServer):
    """Serves several answers by their paths; only the methods ``GET`` and ``HEAD`` are accepted."""

    def __init__(self, endpoint: Endpoint, answers: Mapping[str, Answer], *, subject: str) -> None:
        super().__init__(endpoint, self._answer_at_path, subject=subject)
        self._answers = answers

    async def _answer_at_path(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = self._answers.get(request.path)
        if answer is None:
            return web.Response(status=404, text=f"This is the server of {self._subject}, at another path.\n")
        if request.method not in READING:
            return web.Response(status=405, text="This is read-only.\n", headers={"Allow": ", ".join(sorted(READING))})
        return await answer(request)
