"""
The short way from a client to the server in one event loop: a request and its answer, without HTTP in between.

It has the same results as the long way, by connections in memory, and takes as many turns of the loop, so that the
order of all requests is the same. It is only for usual requests while the network works; streams, large bodies, and
requests while the network is cut take the long way.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol

import aiohttp
import yarl
from multidict import CIMultiDict, CIMultiDictProxy

from kopf_cluster.requests import Answer

_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None)

_TURNS_THERE: Final = 1 if sys.version_info >= (3, 12) else 2
"""The number of turns of the loop before a request arrives, besides the turn in which its task begins. Since Python
3.12, the server starts to handle a new connection in the same turn (by eager tasks).
"""


class ShortRequest:
    """A request without a connection, with the attributes of other requests."""

    transport: None = None

    def __init__(self, method: str, raw_path: str, headers: CIMultiDict[str], body: bytes) -> None:
        self.method = method
        self.raw_path = raw_path
        self.headers = CIMultiDictProxy(headers)
        self.can_read_body = bool(body)
        self._body = body

    @property
    def path(self) -> str:
        return urllib.parse.unquote(self.raw_path.partition("?")[0])

    async def arrive(self) -> None:
        """Wait for as many turns of the loop as with a connection."""
        for _ in range(_TURNS_THERE):
            await asyncio.sleep(0)

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as with a connection, where the body comes after the headers
        return self._body


class ShortContent:
    """The body of a response, which is complete."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def readany(self) -> bytes:
        body, self._body = self._body, b""
        return body


class ShortResponse:
    """The response to a usual request, as far as clients use it."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = CIMultiDict({"Content-Type": answer.content_type, **answer.headers})
        self.content = ShortContent(answer.body)

    async def read(self) -> bytes:
        return await self.content.readany()


Ask = Callable[[ShortRequest], asyncio.Task[Answer]]
"""Returns the task that answers the request. It is cancelled instead of an answer if the connection breaks."""


class Passage(Protocol):
    """The part of the network that is used here."""

    def find_shortcut(self) -> Ask | None: ...

    async def pass_back(self) -> None: ...


class ShortcutSession:
    """Makes requests by the short way, or else by the session, which has the headers and the connections."""

    def __init__(self, session: aiohttp.ClientSession, passage: Passage) -> None:
        self._session = session
        self._passage = passage

    @property
    def headers(self) -> CIMultiDict[str]:
        return self._session.headers

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def close(self) -> None:
        await self._session.close()

    def request(
        self,
        method: str,
        url: yarl.URL,
        *,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout = _NO_LIMIT,
        **options: Any,
    ) -> contextlib.AbstractAsyncContextManager[ShortResponse | aiohttp.ClientResponse]:
        """Return the context of the response, as sessions do."""
        ask = self._passage.find_shortcut()
        if ask is None or self.closed or "watch=" in url.raw_query_string or not isinstance(data, bytes | None):
            return self._session.request(method, url, data=data, headers=headers, timeout=timeout, **options)
        known = self.headers.copy()
        known.update(headers or {})
        request = ShortRequest(method, url.raw_path_qs, known, data or b"")
        return _Exchange(self._passage, ask, request, timeout.total)


class _Exchange:
    """The context of one response."""

    def __init__(self, passage: Passage, ask: Ask, request: ShortRequest, limit: float | None) -> None:
        self._passage = passage
        self._ask = ask
        self._request = request
        self._limit = limit

    async def __aenter__(self) -> ShortResponse:
        async with asyncio.timeout(self._limit):
            answering = self._ask(self._request)
            try:
                answer = await answering  # if the client is cancelled, this task is cancelled, too
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if not answering.cancelled() or current is None or current.cancelling():
                    raise
                await self._return()
                raise aiohttp.ClientOSError("the connection is broken") from None
            await self._return()
            return ShortResponse(answer)

    async def _return(self) -> None:
        """Wait as long as with a connection: answers arrive in the next turn, unless the network is cut."""
        await asyncio.sleep(0)
        await self._passage.pass_back()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass
