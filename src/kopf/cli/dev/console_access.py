"""The console under ``kopf dev``: its address, the options of the operator for it, and the opening of the browser."""

from __future__ import annotations

import asyncio
import html
import os
import pathlib
import secrets
import socket
import sys
import tempfile
import webbrowser
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._insight.endpoint.protection import TOKEN_VARIABLE
from kopf._serving.endpoints import parse_endpoint
from kopf.cli.dev.child import KUBECONFIG_VARIABLE

_PORTS = range(20_000, 30_000)
"""Ports without usual servers, and outside of the ports that systems use for connections."""
_OPENING_TIMEOUT = 15.0
_POLLING_INTERVAL = 0.1
_READING_TIMEOUT = 30.0
"""For how long the page that leads to the console exists, in seconds: browsers can start slowly."""
REDIRECTION = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}">'


class DevConsole:
    """The console of the operator, which outlives its reloads: the same address, the same token."""

    def __init__(self, kubeconfig: pathlib.Path, endpoint: str | None) -> None:
        """``endpoint`` is the address by the user, if any; the ``kubeconfig`` is for changes from the page."""
        token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(16)
        self.args: Sequence[str] = ()
        """The arguments of the operator."""
        if endpoint is None:
            endpoint = f"http://127.0.0.1:{find_port(pathlib.Path.cwd())}"
            self.args = (f"--console={endpoint}",)
        self.env: Mapping[str, str] = {TOKEN_VARIABLE: token, KUBECONFIG_VARIABLE: str(kubeconfig)}
        """The environment of the operator."""
        self._endpoint = parse_endpoint(endpoint, title="console", path="")
        self.url = f"{endpoint.rstrip('/')}/?token={token}"
        """The address for the browser."""

    async def open(self) -> None:
        """Open the browser when the console is served; if it is not served in time, do nothing."""
        host = self._endpoint.host or "127.0.0.1"
        try:
            async with asyncio.timeout(_OPENING_TIMEOUT):
                while not await _is_open(host, self._endpoint.port):  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(_POLLING_INTERVAL)
        except TimeoutError:
            return
        # All users of the machine see the arguments of the browser's process, so the token is not in them.
        with tempfile.TemporaryDirectory(prefix="kopf-console-") as folder:
            page = pathlib.Path(folder, "console.html")
            page.write_text(REDIRECTION.format(url=html.escape(self.url)))
            await asyncio.to_thread(webbrowser.open, page.as_uri())
            await asyncio.sleep(_READING_TIMEOUT)


def is_to_be_opened(wish: bool | None, env: Mapping[str, str], stream: Any) -> bool:
    """
    Tell if to open a browser: for people at a terminal, unless they do not wish it.

    Without a screen, it could be a browser for terminals, which would take over this terminal.
    """
    has_screen = sys.platform != "linux" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))
    return wish is not False and stream.isatty() and not env.get("CI") and has_screen


def find_port(folder: pathlib.Path) -> int:
    """Find a free port: always the same for a project, so that open pages find it again; or the next free one."""
    first = zlib.crc32(bytes(folder)) % len(_PORTS)
    return next(filter(_is_free, (*_PORTS[first:], *_PORTS[:first])), _PORTS[first])


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, sys.platform != "win32")
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def _is_open(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
