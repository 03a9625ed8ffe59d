"""How a running operator is asked: whatever answers there, is told in words."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from aiohttp import web

from kopf._insight.endpoint.console_client import ConsoleClientError, ask_operator
from kopf._insight.endpoint.console_server import ConsoleServer, Route, Routes
from kopf._insight.endpoint.protection import protect
from kopf._insight.explaining.explanation import Query

TOKEN = "0123456789abcdef"
QUERY = Query("kex", "default", "obj")
ANSWER = {"schema": "kopf.dev/explanation/v1", "at": "now"}


async def ask(status: int = 200, text: str = "", token: str | None = TOKEN, query: Query = QUERY) -> tuple[Any, Any]:
    """Get what is answered by an operator that answers so, and what it was asked for."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.update(request.query)
        return web.Response(status=status, text=text)

    asked: dict[str, str] = {}
    routes = Routes()
    routes["/api/explain"] = Route(answer)
    async with ConsoleServer(*protect("http://127.0.0.1:0", TOKEN), routes) as server:
        return await ask_operator(f"{server.endpoint}", token, query), asked


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUERY, {"resource": "kex", "namespace": "default", "name": "obj"}),
        (Query("a&b", None, "x=y"), {"resource": "a&b", "name": "x=y"}),
    ],
)
async def test_the_answer(query: Query, expected: dict[str, str]) -> None:
    assert await ask(text=json.dumps(ANSWER), query=query) == (ANSWER, expected)


@pytest.mark.parametrize(
    ("status", "text", "problem"),
    [
        (404, '{"error": "There is no such object."}', "There is no such object."),
        (200, '{"schema": "kopf.dev/explanation/v2"}', "it has another version of Kopf"),
        (200, "<html>", "it answers with HTTP 200, and is not the console of an operator"),
        (200, "[]", "it answers with HTTP 200, and is not the console of an operator"),
        (502, '{"error": 1}', "it answers with HTTP 502, and is not the console of an operator"),
        (307, "", "it answers with HTTP 307, and is not the console of an operator"),
    ],
)
async def test_other_answers(status: int, text: str, problem: str) -> None:
    with pytest.raises(ConsoleClientError) as error:
        await ask(status, text)
    assert str(error.value) == problem


@pytest.mark.parametrize("token", [None, "another-0123456789"])
async def test_wrong_tokens(token: str | None) -> None:
    with pytest.raises(ConsoleClientError, match="it needs a token, which is missing or wrong: see --token"):
        await ask(token=token)


async def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConsoleClientError, match="the connection has failed: Connection refused"):
        await ask_operator(url, None, QUERY)
