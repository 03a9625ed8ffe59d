"""The console of one operator: its memory, and its answers to the pages."""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from aiohttp import web

from kopf._controller.observer import Observers
from kopf._insight.backlog import Backlog
from kopf._insight.console.history import History
from kopf._insight.console.listeners import AttemptListener, DetailKeeper, ObjectListener
from kopf._insight.console.panels import BackgroundRuns, GroupedErrors, Indices, Peering
from kopf._insight.console.traffic import Traffic
from kopf._insight.console.updates import Updates
from kopf._insight.endpoint.console_server import AnswerError, Route, Routes
from kopf._insight.explaining.explanation import Explanation
from kopf._insight.explaining.wording import word
from kopf._values.version import __version__

_ATTEMPTS = 3
Explain = Callable[[web.BaseRequest], Awaitable[Explanation]]
"""Explains the object of a request; see :meth:`Inspector.answer`."""


class Editing(Protocol):
    """The changes that are made from the page, in development."""

    @property
    def ahead(self) -> float | None:
        """How far the time of the operator has leapt, in seconds; ``None`` if it cannot."""

    def add_to(self, routes: Routes) -> None:
        """Answer the requests of the page. It is called in the event loop of the operator."""


editing: ContextVar[Editing | None] = ContextVar("editing", default=None)
"""The editing for the consoles of this context. The public functions that make operators do not know it."""


class Console:
    """Observes the operator from now on. It answers requests in the thread of its server."""

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
        self._editing = editing.get()
        self._panels: dict[str, Callable[[], object]] = {
            "errors": errors.describe,
            "queues": traffic.describe,
            "background": background.describe,
            "indices": indices.describe,
            "peers": self._peering.describe,
        }
        routes["/api/console/updates"] = Route(Updates(self.history, self._describe_state).answer)
        routes["/api/console/timeline"] = Route(self._answer_timeline)
        routes["/api/console/panel"] = Route(self._answer_panel)
        routes["/api/console/explanation"] = Route(self._answer_explanation)
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

    async def _answer_timeline(self, request: web.BaseRequest) -> object:
        try:
            id, after = int(request.query.get("id", "0")), int(request.query.get("after", "0"))
        except ValueError as e:
            raise AnswerError("The id must be a number.") from e
        entries = self.history.get_timeline(id, after)
        if entries is None:
            raise AnswerError("The object is not remembered.", status=404)
        return entries

    async def _answer_panel(self, request: web.BaseRequest) -> object:
        name = request.query.get("name", "")
        if name not in self._panels:
            raise AnswerError("There is no such panel.", status=404)
        return self.read_panel(name)

    def read_panel(self, name: str) -> Any:
        """Read the content of the panel. A change by the operator meanwhile can disturb that, but rarely does."""
        self.history.backlog.settle()
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(RuntimeError):
                return self._panels[name]()
        return self._panels[name]()

    async def _answer_explanation(self, request: web.BaseRequest) -> object:
        """Explain the object in the words of ``kopf explain``."""
        return word(await self._explain(request))


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
            routes[path] = Route(functools.partial(_answer_file, file.read_bytes(), content_type))


async def _answer_file(content: bytes, content_type: str, request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=content, headers={"Content-Type": content_type})
