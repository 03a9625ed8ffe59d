"""
A proxy that makes objects deep on their way to the operator: neither the cluster nor the tests can have such ones.

Where an object has the text ``@deep:1100@``, the operator gets a thousand and one hundred nested objects.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import aiohttp
from aiohttp import web

from kopf_cluster import LocalCluster

MIB = 2**20
_MARKS = re.compile(rb'"@(deep|list|text):(\d+)@"')


def deep(levels: int) -> str:
    """The mark of nested objects."""
    return f"@deep:{levels}@"


def deep_list(levels: int) -> str:
    """The mark of nested lists."""
    return f"@list:{levels}@"


def custom(number: int) -> str:
    """The mark of one of the texts of the proxy."""
    return f"@text:{number}@"


def fill(item: str, size: int) -> bytes:
    """Make a list of so many bytes with nothing but that item."""
    return f"[{','.join([item] * (size // (len(item) + 1)))}]".encode()


LARGE = fill("{}", 3 * MIB)
"""It becomes about 80 MiB."""


def expand(data: bytes, texts: Sequence[bytes]) -> bytes:
    """Put the real things instead of the marks."""

    def make(match: re.Match[bytes]) -> bytes:
        levels = int(match[2])
        if match[1] == b"text":
            return texts[levels].replace(b"\n", b" ")
        return b'{"a":' * levels + b"1" + b"}" * levels if match[1] == b"deep" else b"[" * levels + b"]" * levels

    return _MARKS.sub(make, data)


def find_objects(content: Any, plural: str = "kopfexamples") -> Iterator[dict[str, Any]]:
    """All objects of the kind in a response or in a line of a stream: those that are listed, watched, or answered."""
    if isinstance(content, dict):
        for obj in [content, content.get("object"), *(content.get("items") or ())]:
            if isinstance(obj, dict) and plural in (obj.get("kind") or plural).lower() + "s":
                yield obj


def _is_expiring(content: Any) -> bool:
    """Tell if it is the first event of an object whose name asks for it: the operator has to list everything anew."""
    if not isinstance(content, dict) or content.get("type") != "ADDED":
        return False
    return bool(content["object"]["metadata"]["name"].startswith("expiring"))


class SpoilingProxy:
    """Forwards all requests to the cluster as its administrator."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.url = ""
        self.texts: list[bytes] = []
        """JSON to be put instead of the custom marks."""
        self.rewrite: Callable[[Any], object] = lambda content: None
        """Changes the decoded responses & lines in place, if there is anything to change in them."""

    async def start(self) -> None:
        context = ssl.create_default_context(cadata=self._cluster.ca_data.decode())
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._cluster.token}"},
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {key: request.headers[key] for key in ("Content-Type", "Accept") if key in request.headers}
        url = self._cluster.url + request.raw_path
        async with self._session.request(
            request.method,
            url,
            data=body or None,
            headers=headers,
            read_bufsize=2**24,
        ) as response:
            if "watch" not in request.query:
                content = await response.read()
                if response.content_type == "application/json":  # unknown groups are refused in plain text
                    content = self._spoil(content)
                return web.Response(body=content, status=response.status, content_type=response.content_type)
            stream = web.StreamResponse(status=response.status, headers={"Content-Type": "application/json"})
            await stream.prepare(request)
            while line := await response.content.readline():
                await stream.write(self._spoil(line) + b"\n")
            await stream.write_eof()
            return stream

    def _spoil(self, content: bytes) -> bytes:
        decoded = json.loads(content)
        if _is_expiring(decoded):
            decoded = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
        self.rewrite(decoded)
        return expand(json.dumps(decoded).encode(), self.texts)
