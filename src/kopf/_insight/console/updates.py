"""
Updates: the changes of the list of objects, as server-sent events to the open pages, several times per second.

A page gets all rows first, and then the changed ones. If a page does not read for long, it is disconnected; it connects
again, and begins with all rows.

A message is made once for all pages: by the event loop of the operator, as the objects are in the caches of its
processor; or by the event loop of the console if the operator is blocked, or nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from kopf._insight.console.history import History, Rows
from kopf._insight.endpoint.console_server import open_stream
from kopf._values import codec

MAX_PAGES = 16
"""How many pages can be open."""
_INTERVAL = 0.5
"""How often the console looks for changes by itself, in seconds; usually, the operator sends them."""
_KEEPALIVE = 20
"""After so many intervals, an empty message is sent to keep the connections."""
_CHUNK = 1000
"""How many rows are serialised at once, while the operator waits."""
_BACKLOG = 50
"""How many updates may wait for a page."""
_WRITING_TIMEOUT = 10.0

_Page = asyncio.Queue[bytes | None]


class Updates:
    """All open pages, in the event loop of the console."""

    def __init__(self, history: History, describe_state: Callable[[], object]) -> None:
        self._history = history
        self._describe_state = describe_state
        self._state: object = None
        self._pages: set[_Page] = set()
        self._is_told = False
        """Whether the operator has made a message since the last look."""
        self._pump: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send the rows and their changes to a page until it is closed."""
        if len(self._pages) >= MAX_PAGES:
            return web.Response(status=503, text="Too many pages of the console are open.\n")
        page = _Page()
        self._pages.add(page)
        try:
            response = await open_stream(request, "text/event-stream")
            await self._greet(response)
            if self._pump is None:
                self._loop = asyncio.get_running_loop()
                self._pump = asyncio.create_task(self._keep_telling())
                self._history.backlog.on_expiry = self._gather
            while (message := await page.get()) is not None:
                async with asyncio.timeout(_WRITING_TIMEOUT):
                    await response.write(message)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._pages.discard(page)
            if not self._pages:
                await self._rest()
        return response

    async def _greet(self, response: web.StreamResponse) -> None:
        records = self._history.watch()
        self._state = self._describe_state()
        await response.write(b"retry: 1000\n" + _make_message("reset", int(self._history.backlog.now * 1000)))
        await response.write(_make_message("state", self._state))
        for start in range(0, len(records), _CHUNK):
            await response.write(_make_message("rows", [item.make_row() for item in records[start : start + _CHUNK]]))
        await response.write(_make_message("ready", len(records)))

    async def _rest(self) -> None:
        self._history.unwatch()
        self._history.backlog.on_expiry = None
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump

    async def _keep_telling(self) -> None:
        while True:
            for _ in range(_KEEPALIVE):
                if not self._is_told:
                    self._gather()
                self._is_told = False
                await asyncio.sleep(_INTERVAL)
            self._tell(b":\n\n")

    def _gather(self) -> None:
        """Send a message with the changes. It can be called in any thread: the messages keep their order."""
        with self._history.backlog.lock:
            self._is_told = True
            changes = self._history.take_changes()
            before, self._state = self._state, self._describe_state()
            message = b"" if self._state == before else _make_message("state", self._state)
            if changes:
                message += make_update(changes)
            if message and self._loop is not None:
                with contextlib.suppress(RuntimeError):  # it is closed, as the operator exits
                    self._loop.call_soon_threadsafe(self._tell, message)

    def _tell(self, message: bytes) -> None:
        for page in self._pages:
            if page.qsize() < _BACKLOG:
                page.put_nowait(message)
            elif page.qsize() == _BACKLOG:
                page.put_nowait(None)


def make_update(changes: Rows) -> bytes:
    """Make the message of the changed rows; a removed one has its id only."""
    rows = [[id] if record is None else record.make_row() for id, record in changes.items()]
    return _make_message("rows", rows)


def _make_message(name: str, content: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), codec.encode(content))
