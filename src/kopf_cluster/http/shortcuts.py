"""
The short way from a client to the server in one event loop: a request and its answer as such, with no HTTP in between.

It is only for what comes out the same on the long way, which goes by connections in memory: for usual requests while
all is well with the network. Streams, large bodies, and whatever begins while the network is cut, take the long way.
The short one takes as many turns of the loop, so that nothing overtakes anything else than on the long one.
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
"""For how many turns of the loop a request is underway besides that in which its task begins. Since Python 3.12, the
server begins to handle a new connection in the same turn (by eager tasks).
"""


class ShortRequest:
    """A request that has come with no connection; with the attributes that others have."""

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
        """Be underway for as many turns of the loop as by a connection."""
        for _ in range(_TURNS_THERE):
            await asyncio.sleep(0)

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as by a connection, where the body comes after the headers
        return self._body


class ShortContent:
    """The body of a response, which is there at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def readany(self) -> bytes:
        body, self._body = self._body, b""
        return body


class ShortResponse:
    """What clients use of the response to a usual request."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = CIMultiDict({"Content-Type": answer.content_type, **answer.headers})
        self.content = ShortContent(answer.body)

    async def read(self) -> bytes:
        return await self.content.readany()


Ask = Callable[[ShortRequest], asyncio.Task[Answer]]
"""Gives the task that answers the request. It is cancelled if there is no answer, as the connection is broken."""


class Passage(Protocol):
    """The network, as far as it is needed here."""

    def find_shortcut(self) -> Ask | None: ...

    async def pass_back(self) -> None: ...


class ShortcutSession:
    """Makes requests by the short way, or else by the session, to which the headers and the connections belong."""

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
        """Give the context of the response, as sessions do."""
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
                answer = await answering  # if it is not awaited any more, the client has gone, and it is cancelled, too
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if not answering.cancelled() or current is None or current.cancelling():
                    raise
                await self._return()
                raise aiohttp.ClientOSError("the connection is broken") from None
            await self._return()
            return ShortResponse(answer)

    async def _return(self) -> None:
        """Be underway for as long as by a connection: what is sent, arrives in the next turn, if nothing is cut."""
        await asyncio.sleep(0)
        await self._passage.pass_back()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass
