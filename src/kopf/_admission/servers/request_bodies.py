"""
Bodies of requests: read as they come, within the limits of time and size; of each one, and of all at once.

The bytes are counted as they arrive, not as they are promised, and until the review is answered. If there are too many,
the oldest incomplete body has to go: whoever sends slowly does not hold the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from aiohttp import web


class Refusal(Exception):
    """The request is not going to be handled; the response is of this HTTP status and with this text."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class _Body:
    """One body, maybe not the whole of it yet."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.request = request
        self.chunks: list[bytes] = []
        self.size = 0


class Bodies:
    """Reads the bodies for one server. Sizes are in bytes, times are in seconds."""

    def __init__(self, *, max_body: int, max_total: int, timeout: float) -> None:
        self._max_body = max_body
        self._max_total = max_total
        self._timeout = timeout
        self._total = 0
        self._incomplete: dict[_Body, None] = {}

    @contextlib.asynccontextmanager
    async def reading(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """Give the whole body; it counts as long as the block lasts. Raises :class:`Refusal` if there cannot be one."""
        if (request.content_length or 0) > self._max_body:
            raise self._make_refusal()
        body = _Body(request)
        self._incomplete[body] = None
        try:
            await self._read(body)
            self._check(body)
            del self._incomplete[body]
            content, body.chunks = b"".join(body.chunks), []
            yield content
        finally:
            self._forget(body)

    async def _read(self, body: _Body) -> None:
        request = body.request
        try:
            async with asyncio.timeout(self._timeout):
                if request.headers.get("Expect", "").lower() == "100-continue":  # curl asks so for large ones
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    request.writer.output_size = 0
                while chunk := await request.content.readany():
                    self._add(body, chunk)
        except TimeoutError:
            raise Refusal(408, f"The request was not sent in {self._timeout:g} seconds.") from None
        except (web.RequestPayloadError, ConnectionError):
            raise Refusal(400, "The request is broken or incomplete.") from None

    def _add(self, body: _Body, chunk: bytes) -> None:
        if body.size + len(chunk) > self._max_body:
            raise self._make_refusal()
        self._check(body)
        body.chunks.append(chunk)
        body.size += len(chunk)
        self._total += len(chunk)
        while self._total > self._max_total:
            oldest = next(iter(self._incomplete))
            self._forget(oldest)
            if oldest is not body and oldest.request.transport is not None:
                oldest.request.transport.abort()
            self._check(body)

    def _check(self, body: _Body) -> None:
        """Raise :class:`Refusal` if it had to go: its last bytes could have come meanwhile."""
        if body not in self._incomplete:
            raise Refusal(503, "There are too many requests at once.", {"Retry-After": "1"})

    def _forget(self, body: _Body) -> None:
        self._incomplete.pop(body, None)
        self._total -= body.size
        body.size = 0
        body.chunks = []

    def _make_refusal(self) -> Refusal:
        return Refusal(413, f"The request is larger than {self._max_body} bytes.")
