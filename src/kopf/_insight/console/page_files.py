"""The files of the page: plain HTML, CSS, and modules, as they are in the package."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kopf._insight.endpoint.console_server import Routes

if TYPE_CHECKING:
    from aiohttp import web

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
            routes.add(path, _File(file.read_bytes(), content_type).answer)


class _File:
    def __init__(self, content: bytes, content_type: str) -> None:
        self._content = content
        self._content_type = content_type

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        return web.Response(body=self._content, headers={"Content-Type": self._content_type})
