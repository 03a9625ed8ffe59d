"""The server of the health: what is answered to those who probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kopf._serving.endpoints import Endpoint
from kopf._serving.threaded_server import Answer, ServingError, ThreadedServer

if TYPE_CHECKING:
    from aiohttp import web


NOBODY: Mapping[str, Answer] = {}


class HealthServerError(ServingError):
    """The health cannot be served there, e.g. because the port is occupied."""


class _Report(Protocol):
    @property
    def is_healthy(self) -> bool: ...

    @property
    def content(self) -> bytes: ...


class HealthServer(ThreadedServer):
    """Serves inside of the ``async with`` block; answers with 200 or 503."""

    error = HealthServerError

    def __init__(
        self, endpoint: Endpoint, report: Callable[[], Awaitable[_Report]], neighbours: Mapping[str, Answer] = NOBODY
    ) -> None:
        """``neighbours`` are those who answer at the other paths."""
        super().__init__(endpoint, self._answer_probe, subject="the health")
        self._report = report
        self._neighbours = neighbours

    async def _answer_probe(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web  # it is loaded by now

        if (neighbour := self._neighbours.get(request.path)) is not None:
            return await neighbour(request)
        if request.path != self._endpoint.path:
            return web.Response(status=404, text="The health is not here.\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="The health is read-only.\n", headers={"Allow": "GET, HEAD"})
        report = await self._report()
        status = 200 if report.is_healthy else 503
        headers = {"Cache-Control": "no-store", "Content-Type": "application/json; charset=utf-8"}
        return web.Response(body=report.content, status=status, headers=headers)
