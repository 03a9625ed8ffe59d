"""
The server of the console: a table of paths behind the protection, in a thread of its own.

The functions of the table are called in the event loop of the server. To reach the operator's event loop, they use
:func:`asyncio.run_coroutine_threadsafe` with a timeout, as that loop can be blocked.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from kopf._insight.endpoint.protection import HEADERS, Inquiry, Protection, Refusal
from kopf._serving.endpoints import READING, Endpoint
from kopf._serving.limited_logs import RateLimitedLogger
from kopf._serving.threaded_server import ThreadedServer
from kopf._values import codec
from kopf._values.records import FrozenRecord

logger = logging.getLogger(__name__)

Answer = Callable[[web.BaseRequest], Awaitable[object]]
"""Makes the response, or the content of a response in JSON. Raises :class:`AnswerError`."""


class AnswerError(Exception):
    """A request cannot be answered: the text says why, the ``status`` is the one of HTTP."""

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Route(FrozenRecord, frozen=True):
    """The answers under one path."""

    answer: Answer
    methods: frozenset[str] = READING
    """Other methods are refused. All methods but ``GET`` and ``HEAD`` accept JSON only, and only from the same site."""


Routes = dict[str, Route]
"""The table: the routes by their paths, e.g. ``/api/explain``."""


class ConsoleServer(ThreadedServer):
    """Serves inside of the ``async with`` block."""

    def __init__(self, endpoint: Endpoint, protection: Protection, routes: Routes) -> None:
        super().__init__(endpoint, self._answer_request, subject="the console")
        self._protection = protection
        self._routes = routes
        self._logger = RateLimitedLogger(logger, burst=1)

    async def _answer_request(self, request: web.BaseRequest) -> web.StreamResponse:
        inquiry = make_inquiry(request)
        route = self._routes.get(request.path)
        refusal = self._protection.find_refusal(inquiry, READING if route is None else route.methods)
        if refusal is not None and refusal.status == 401 and (cookie := self._protection.exchange(inquiry)):
            # The token must not stay in the address: browsers show, remember, and copy it.
            location, headers = _make_location(request), {"Set-Cookie": cookie}
            if inquiry.site == "cross-site":  # there, browsers send no strict cookies after redirects
                page = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(location)}">'
                response = web.Response(text=page, content_type="text/html", headers=headers)
            else:
                response = web.Response(status=303, headers={"Location": location, **headers})
        elif refusal is not None:
            response = make_refusal(refusal, {} if route is None else {"Allow": ", ".join(sorted(route.methods))})
        elif route is None:
            response = make_refusal(Refusal(404, "There is nothing here."), {})
        else:
            return await self._answer_by(route, request)
        response.headers.update(HEADERS)
        return response

    async def _answer_by(self, route: Route, request: web.BaseRequest) -> web.StreamResponse:
        status = 200
        try:
            response = await route.answer(request)
        except AnswerError as e:
            response, status = {"error": str(e)}, e.status
        except Exception as e:  # its text can contain anything, so it goes to the logs only
            self._logger.error("The console has failed to answer at %s", request.path, exc_info=e)
            response = make_refusal(Refusal(500, "The console has failed, see the logs of the operator."), {})
        if not isinstance(response, web.StreamResponse):
            body, kind = codec.encode(response), "application/json"
            response = web.Response(body=body, status=status, content_type=kind, charset="utf-8")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response


def make_inquiry(request: web.BaseRequest) -> Inquiry:
    """Take the parts of the request that the protection needs."""
    headers = request.headers
    return Inquiry(
        method=request.method,
        hosts=headers.getall("Host", []),
        authorization=headers.get("Authorization"),
        cookies=headers.getall("Cookie", []),
        query_token=request.query.get("token"),
        origin=headers.get("Origin"),
        site=headers.get("Sec-Fetch-Site"),
        is_navigation=headers.get("Sec-Fetch-Mode") == "navigate",
        content_type=headers.get("Content-Type"),
    )


def make_refusal(refusal: Refusal, headers: Mapping[str, str]) -> web.Response:
    """Make the response that tells the refusal."""
    extra = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else headers if refusal.status == 405 else {}
    return web.Response(status=refusal.status, text=f"{refusal.text}\n", headers=extra)


async def open_stream(request: web.BaseRequest, content_type: str) -> web.StreamResponse:
    """Begin a response that is written bit by bit, e.g. server-sent events; with the usual headers."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": content_type})
    response.force_close()
    await response.prepare(request)
    return response


def _make_location(request: web.BaseRequest) -> str:
    """Make the same address without the token. It has one leading slash: two would begin the name of a host."""
    query = request.rel_url.without_query_params("token").raw_query_string
    return "/" + request.rel_url.raw_path.lstrip("/\\") + (f"?{query}" if query else "")
