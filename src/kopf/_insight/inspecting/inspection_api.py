"""The inspection over HTTP: ``GET /api/explain?resource=kopfexamples&namespace=default&name=obj``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._insight.endpoint.console_server import Routes
from kopf._insight.inspecting.inspector import InspectionError, Inspector, Query
from kopf._values import codec

if TYPE_CHECKING:
    from aiohttp import web

EXPLAIN_PATH = "/api/explain"

_MAX_NAME = 300


def add_inspection(routes: Routes, inspector: Inspector) -> None:
    """Have the questions about objects answered."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web  # it is loaded by now

        try:
            content, status = codec.encode(await inspector.ask(_parse(request))), 200
        except InspectionError as e:
            content, status = codec.encode({"error": str(e)}), e.status
        return web.Response(body=content, status=status, content_type="application/json", charset="utf-8")

    routes.add(EXPLAIN_PATH, answer)


def _parse(request: web.BaseRequest) -> Query:
    query = request.query
    resource, namespace, name = query.get("resource", ""), query.get("namespace"), query.get("name", "")
    if not resource or not name or max(map(len, (resource, namespace or "", name))) > _MAX_NAME:
        raise InspectionError("The resource and the name of the object are needed: ?resource=…&name=…", status=400)
    return Query(resource, namespace or None, name)
