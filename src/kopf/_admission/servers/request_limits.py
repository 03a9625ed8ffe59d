"""
Limits of memory for requests: for their bodies as they arrive, and for decoded reviews.

Bytes count when they arrive, not when they are announced, and until the review has its response. If there are too many,
the oldest incomplete body is dropped, so that slow clients do not block the others.

Decoded reviews share a budget of memory. When it is spent, the next reviews wait. There are two lanes, so that large
reviews delay only large ones. The bytes of waiting large reviews are limited, too, as the bodies that are still
arriving also need memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from aiohttp import web

_SMALL_SHARE = 32
"""The part of the budget up to which a review is small: about 2 MiB by default."""


class Refusal(Exception):
    """The request is refused, with this HTTP status and text."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class _Body:
    """One body, complete or not."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.request = request
        self.chunks: list[bytes] = []
        self.size = 0


class Bodies:
    """Reads the bodies for one server. Sizes are in bytes, times in seconds."""

    def __init__(self, *, max_body: int, max_total: int, timeout: float) -> None:
        self._max_body = max_body
        self._max_total = max_total
        self._timeout = timeout
        self._total = 0
        self._incomplete: dict[_Body, None] = {}

    @contextlib.asynccontextmanager
    async def reading(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """Yield the whole body, which counts during the block. Raises :class:`Refusal` if it cannot be read."""
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
                if request.headers.get("Expect", "").lower() == "100-continue":  # curl does so for large bodies
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
        """Raise :class:`Refusal` if the body was dropped: its last bytes can have come since then."""
        if body not in self._incomplete:
            raise Refusal(503, "There are too many requests at once.", {"Retry-After": "1"})

    def _forget(self, body: _Body) -> None:
        self._incomplete.pop(body, None)
        self._total -= body.size
        body.size = 0
        body.chunks = []

    def _make_refusal(self) -> Refusal:
        return Refusal(413, f"The request is larger than {self._max_body} bytes; see max_body= of the webhook server.")


class DecodingBudget:
    """The memory for decoded reviews. Sizes are in bytes."""

    def __init__(self, max_size: int, *, max_waiting: int, timeout: float) -> None:
        """``max_size`` limits decoded reviews, ``max_waiting`` limits encoded ones; ``timeout`` is in seconds."""
        self.max_size = max_size
        """The limit of one review, and of all large ones together. All small ones together get a half."""
        self._max_waiting = max_waiting
        self._timeout = timeout
        self._large = _Lane(max_size)
        self._small = _Lane(max_size // 2)

    @contextlib.asynccontextmanager
    async def taking(self, size: int, encoded_size: int) -> AsyncIterator[None]:
        """Reserve the memory during the block. Raises :class:`Refusal` if it is not available in time."""
        if size > self.max_size:
            raise Refusal(413, f"The review takes more than {self.max_size} bytes when it is decoded.")
        lane = self._small if size <= self.max_size // _SMALL_SHARE else self._large
        if lane is self._large and lane.waiting and lane.waiting + encoded_size > self._max_waiting:
            raise _make_refusal()
        try:
            async with asyncio.timeout(self._timeout):
                await lane.take(size, encoded_size)
        except TimeoutError:
            raise _make_refusal() from None
        try:
            yield
        finally:
            lane.give_back(size)


class _Lane:
    """A share of the memory. Reviews get it in the order of their arrival."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self.waiting = 0
        """The encoded size of all waiting reviews."""

    async def take(self, size: int, encoded_size: int) -> None:
        self.waiting += encoded_size
        try:
            async with self._turn:
                while size > self._free:
                    self._room.clear()
                    await self._room.wait()
                self._free -= size
        finally:
            self.waiting -= encoded_size

    def give_back(self, size: int) -> None:
        self._free += size
        self._room.set()


def _make_refusal() -> Refusal:
    return Refusal(503, "There are too many large requests at once.", {"Retry-After": "1"})
