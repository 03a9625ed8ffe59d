"""
Sessions of our own: HTTP/1.1 on the protocols of the event loop, without proxies, redirects, and cookies.

Good connections are kept, in any number: each watch stream takes one.

The server can close a kept connection at the moment of a request. If no part of the response has come, and the method
is idempotent (RFC 9110, section 9.2.2), the request is repeated at once on a new connection. Other requests fail, as it
is unknown whether the server has performed them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType

from kopf._client.http.connecting import FAREWELL_TIMEOUT, Connector
from kopf._client.http.deadlines import Deadlines
from kopf._client.http.request_heads import RequestHeads
from kopf._client.http.response_parser import BodyDecoder
from kopf._client.http.server_address import ServerAddress
from kopf._client.http.transport import DisconnectedError, Headers, Limits, SilenceError, TransportError
from kopf._client.http.wire import Wire

KEEPALIVE_TIMEOUT = 45.0
"""
The time for which an unused TCP connection is kept, in seconds. API servers and load balancers drop it after 60 or
more.
"""

_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})


class DirectSession:
    """
    The connections to one server, see :class:`kopf._client.http.transport.Session`.

    Create it inside of an event loop. Raises :class:`ValueError` if the headers cannot be sent, or if TLS is needed and
    there is no context.

    Large because it makes requests on one side, and is the pool of connections on the other side.
    """

    def __init__(
        self,
        address: ServerAddress,
        headers: Mapping[str, str],
        context: ssl.SSLContext | None,
        server_hostname: str | None = None,
    ) -> None:
        if address.is_secure and context is None:
            raise ValueError(f"The server {address.url} needs TLS, but there is no TLS context.")
        self._loop = asyncio.get_running_loop()
        self._heads = RequestHeads(address, headers)
        self._connector = Connector(address, context if address.is_secure else None, server_hostname)
        self._wires: set[Wire] = set()
        self._idle: dict[Wire, None] = {}  # the last one is the most recently used
        self._is_retired = False
        self._all_closed: asyncio.Future[None] | None = None
        self.deadlines = Deadlines()
        """The deadlines of the requests."""
        self.closed = False
        """Whether it is closed."""

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace some headers."""
        self._heads.update(headers)

    def retire(self) -> None:
        """Keep no unused connections from now on. Streams can continue for minutes."""
        self._is_retired = True
        while self._idle:
            self._idle.popitem()[0].fail(DisconnectedError("The connection is unused"))

    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, limits: Limits
    ) -> Exchange:
        """Make a request."""
        head = self._heads.make(method, target, None if body is None else len(body), headers)
        return Exchange(self, head, body, limits, is_repeatable=method in _IDEMPOTENT)

    def pick(self) -> Wire | None:
        """Take a kept connection, if there is any."""
        while self._idle:
            wire, _ = self._idle.popitem()
            if wire.has_unread():  # it would look like the next response
                wire.fail(DisconnectedError("The server has closed the connection, or has sent data without a request"))
            if wire.is_usable:
                return wire
        return None

    async def connect(self, timeout: float | None, deadline: float | None) -> Wire:
        """Open a connection. Raises :class:`OSError`."""
        if self.closed:
            raise TransportError("The session is closed")
        wire = Wire(self._loop, self)
        try:
            await self._connector.connect(wire, timeout, deadline)
        except BaseException:
            wire.abort()  # event loops do not notify of the end if it was opened just now
            wire.response.close()
            self.forget(wire)
            raise
        return wire

    def remember(self, wire: Wire) -> None:
        """Note an open connection, perhaps too late."""
        self._wires.add(wire)
        if self.closed:
            wire.fail(DisconnectedError("The session is closed"))

    def forget(self, wire: Wire) -> None:
        """Note a closed connection."""
        self._wires.discard(wire)
        self._idle.pop(wire, None)
        if not self._wires and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def take_back(self, wire: Wire) -> None:
        """Keep the connection for other requests, or drop it."""
        if wire.give_back():
            if self._is_retired:
                wire.fail(DisconnectedError("The connection is unused"))
                return
            wire.idle_since = self._loop.time()
            if not self._idle:
                self.deadlines.follow(self, wire.idle_since + KEEPALIVE_TIMEOUT)
            self._idle[wire] = None

    def check(self, now: float) -> float | None:
        """Drop connections that are unused for too long. Return the time of the next check."""
        while self._idle:
            oldest = next(iter(self._idle))
            due = oldest.idle_since + KEEPALIVE_TIMEOUT
            if due > now:
                return due
            del self._idle[oldest]
            oldest.fail(DisconnectedError("The connection is unused"))
        self.deadlines.forget(self)
        return None

    async def close(self) -> None:
        """Close all connections, even the used ones. Abort the ones that do not close in time."""
        self.closed = True
        self.deadlines.stop()
        for wire in list(self._wires):
            wire.fail(DisconnectedError("The session is closed"))
        await self._wait_for_all()
        for wire in list(self._wires):
            wire.abort()
        await self._wait_for_all()

    async def _wait_for_all(self) -> None:
        if self._wires:
            self._all_closed = self._loop.create_future()
            await asyncio.wait([self._all_closed], timeout=FAREWELL_TIMEOUT)


class Exchange:
    """
    One request with its response, as a context: see :class:`kopf._client.http.transport.Response`.

    When the context ends, the connection is kept if the response was read to its end.
    """

    __slots__ = ("_body", "_deadline", "_decoder", "_head", "_is_repeatable", "_limits", "_session", "_wire")

    def __init__(
        self, session: DirectSession, head: bytes, body: bytes | None, limits: Limits, *, is_repeatable: bool
    ) -> None:
        self._session = session
        self._head = head
        self._body = body
        self._limits = limits
        self._is_repeatable = is_repeatable
        self._deadline: float | None = None
        self._decoder: BodyDecoder | None = None
        self._wire: Wire | None = None

    async def __aenter__(self) -> Exchange:
        limits, session = self._limits, self._session
        now = asyncio.get_running_loop().time()
        self._deadline = now + limits.total if limits.total else None
        kept = session.pick()
        if kept is not None:
            try:
                await self._ask(kept)
            except DisconnectedError:
                if not self._is_repeatable or kept.response.is_begun or session.closed:
                    raise
            else:
                return self
        await self._ask(await session.connect(limits.connect or None, self._deadline))
        return self

    async def _ask(self, wire: Wire) -> None:
        self._wire = wire
        inactivity = self._limits.inactivity
        if inactivity:
            self._session.deadlines.follow(self, asyncio.get_running_loop().time() + inactivity)
        if self._deadline is not None:
            self._session.deadlines.follow(self, self._deadline)
        try:
            if self._limits.check is not None:
                self._limits.check()
            await wire.ask(self._head, self._body)
        except BaseException:
            self._end()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and self._wire is not None:
            self._wire.fail(error)
        self._end()

    def _end(self) -> None:
        self._session.deadlines.forget(self)
        if self._wire is not None:
            self._session.take_back(self._wire)
            self._wire = None

    def check(self, now: float) -> float | None:
        """Fail if the request or a silence takes too long. Return the time of the next check."""
        wire, inactivity = self._get_wire(), self._limits.inactivity
        if self._deadline is not None and self._deadline <= now:
            wire.fail(TimeoutError())
            return None
        if not inactivity:
            return self._deadline
        if wire.is_late(inactivity, now):
            wire.fail(SilenceError("Timeout on reading data from the server"))
            return None
        due = wire.touched + inactivity
        if due <= now:  # nobody reads the response now, so silence does not count
            due = now + inactivity / 2
        return due if self._deadline is None else min(due, self._deadline)

    @property
    def status(self) -> int:
        """The code of the response."""
        return self._get_wire().response.status

    @property
    def headers(self) -> Headers:
        """The headers of the response."""
        return Headers(self._get_wire().response.headers)

    async def read_chunk(self) -> bytes:
        """Read the part of the body that has come."""
        wire = self._get_wire()
        encoding = wire.response.encoding
        if encoding is None:
            return await wire.read_chunk()
        if self._decoder is None:
            self._decoder = BodyDecoder(encoding)
        if piece := self._decoder.decode(b""):
            return piece
        while chunk := await wire.read_chunk():
            if piece := self._decoder.decode(chunk):
                return piece
        self._decoder.finish()
        return b""

    def _get_wire(self) -> Wire:
        if self._wire is None:
            raise RuntimeError("The request is not made, or is over.")
        return self._wire
