"""The console of one operator: what it remembers, and what it answers to its pages."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.resources
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from kopf._controller.observer import Observers
from kopf._insight.backlog import Backlog
from kopf._insight.console.history import History
from kopf._insight.console.listeners import AttemptListener, DetailKeeper, ObjectListener
from kopf._insight.console.panels import BackgroundRuns, GroupedErrors, Indices, Peering
from kopf._insight.console.traffic import Traffic
from kopf._insight.console.updates import Updates
from kopf._insight.endpoint.console_server import Routes
from kopf._insight.explaining.explanation import Explanation, Query
from kopf._insight.explaining.wording import word
from kopf._insight.inspecting.inspector import InspectionError, parse_query
from kopf._values import codec
from kopf._values.version import __version__

if TYPE_CHECKING:
    from aiohttp import web

_ATTEMPTS = 3
Explain = Callable[[Query], Awaitable[Explanation]]
"""Explains an object; see :meth:`Inspector.ask`."""


class Editing(Protocol):
    """What is changed from the page, in development."""

    @property
    def ahead(self) -> float | None:
        """How far the time of the operator has leapt, in seconds; ``None`` if it cannot."""

    def add_to(self, routes: Routes) -> None:
        """Answer the requests of the page."""


make_editing: ContextVar[Callable[[asyncio.AbstractEventLoop], Editing] | None] = ContextVar("editing", default=None)
"""What makes that for the event loop of the operator, which is made by public functions that do not know of it."""


class Console:
    """Observes the operator since it is made. What it answers, it answers in the thread of its server."""

    def __init__(self, observers: Observers, backlog: Backlog, routes: Routes, explain: Explain) -> None:
        self.history = History(backlog)
        self._explain = explain
        errors, background = GroupedErrors(backlog), BackgroundRuns()
        traffic = Traffic(self.history)
        attempts = AttemptListener(self.history, errors, background)
        objects = ObjectListener(self.history, errors, traffic)
        indices = Indices(attempts.secret_indices)
        self._peering = Peering(self.history)
        backlog.add(attempts, objects)
        observers.add(traffic, indices, self._peering, DetailKeeper(objects, backlog))
        make = make_editing.get()
        self._editing = None if make is None else make(asyncio.get_running_loop())
        self._panels: dict[str, Callable[[], object]] = {
            "errors": errors.describe,
            "queues": traffic.describe,
            "background": background.describe,
            "indices": indices.describe,
            "peers": self._peering.describe,
        }
        routes.add("/api/console/updates", Updates(self.history, self._describe_state).answer)
        routes.add("/api/console/timeline", self._answer_timeline)
        routes.add("/api/console/panel", self._answer_panel)
        routes.add("/api/console/explanation", self._answer_explanation)
        add_files(routes)
        if self._editing is not None:
            self._editing.add_to(routes)

    def _describe_state(self) -> dict[str, object]:
        history = self.history
        return {
            "version": __version__,
            "dev": self._editing is not None,
            "ahead": None if self._editing is None else self._editing.ahead,
            "pid": os.getpid(),
            "kinds": [kind.row for kind in [*history.kinds.values()]],
            "pause": self._peering.pause,
            "forgotten": history.forgotten,
        }

    async def _answer_timeline(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        try:
            id, after = int(request.query.get("id", "0")), int(request.query.get("after", "0"))
        except ValueError:
            return web.Response(status=400, text="The id is to be a number.\n")
        entries = self.history.get_timeline(id, after)
        status = 404 if entries is None else 200
        return web.Response(status=status, body=codec.encode(entries or []), content_type="application/json")

    async def _answer_panel(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        name = request.query.get("name", "")
        if name not in self._panels:
            return web.Response(status=404, text="There is no such panel.\n")
        return web.Response(body=codec.encode(self.read_panel(name)), content_type="application/json")

    def read_panel(self, name: str) -> Any:
        """What the panel shows. The operator can change it right now; rarely so that it cannot be read at all."""
        self.history.backlog.settle()
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(RuntimeError):
                return self._panels[name]()
        return self._panels[name]()

    async def _answer_explanation(self, request: web.BaseRequest) -> web.StreamResponse:
        """The same words as those of ``kopf explain``."""
        from aiohttp import web

        try:
            explanation = await self._explain(parse_query(request))
            return web.Response(body=codec.encode(word(explanation)), content_type="application/json")
        except InspectionError as e:
            return web.Response(status=e.status, text=f"{e}\n")


_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_files(routes: Routes) -> None:
    """Serve the page at the root, and its files beside it."""
    for file in importlib.resources.files(__package__).joinpath("pages").iterdir():
        content_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            routes.add(path, functools.partial(_answer_file, file.read_bytes(), content_type))


async def _answer_file(content: bytes, content_type: str, request: web.BaseRequest) -> web.StreamResponse:
    from aiohttp import web

    return web.Response(body=content, headers={"Content-Type": content_type})
