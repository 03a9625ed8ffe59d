"""
Webhooks for tests: real HTTPS servers, which answer as a test tells them, and remember what they were sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.cluster.certificates import make_certificate

Obj = dict[str, Any]
Answer = Callable[[Obj], Obj | Awaitable[Obj]]

SERVICE = "hooks.ops.svc"


class Hooks:
    """One server with any number of paths."""

    def __init__(self, port: int, bundle: str) -> None:
        self.port = port
        self.bundle = bundle
        self.answers: dict[str, Answer] = {}
        self.reviews: list[tuple[str, Obj]] = []

    def on(self, path: str, answer: Answer) -> Obj:
        """Answer so at the path; give the client config of it."""
        self.answers[path] = answer
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle}

    async def handle(self, request: web.BaseRequest) -> web.Response:
        review = json.loads(await request.read())
        self.reviews.append((request.path, review))
        answer = self.answers[request.path](review)
        answer = answer if isinstance(answer, dict) else await answer
        status = answer.pop("#status", 200)
        return web.json_response(answer, status=status)

    def requests(self, path: str | None = None) -> list[Obj]:
        return [review["request"] for seen, review in self.reviews if path in (None, seen)]


@contextlib.asynccontextmanager
async def serve_hooks(folder: pathlib.Path, *names: str) -> AsyncIterator[Hooks]:
    context, bundle = make_certificate(folder, *(names or ("127.0.0.1", SERVICE)))
    hooks = Hooks(0, bundle)
    server = web.Server(hooks.handle, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    hooks.port = listener.sockets[0].getsockname()[1]
    try:
        yield hooks
    finally:
        listener.close()
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await server.shutdown(0.1)
        await listener.wait_closed()


def respond(review: Obj, **response: Any) -> Obj:
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "allowed": True, **response},
    }


def allow(review: Obj) -> Obj:
    return respond(review)


def deny(message: str = "", **status: Any) -> Answer:
    return lambda review: respond(review, allowed=False, status={"message": message, **status})


def patch(*operations: Obj) -> Answer:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda review: respond(review, patchType="JSONPatch", patch=encoded)


def add(path: str, value: Any) -> Obj:
    return {"op": "add", "path": path, "value": value}
