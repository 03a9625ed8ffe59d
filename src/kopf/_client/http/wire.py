"""
A wire: one TCP connection with one request at a time.

After any error, it is never used again: the rest of one response must not become another one.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import Protocol

from kopf._client.http.response_parser import ResponseParser
from kopf._client.http.transport import DisconnectedError, ProtocolError

_HIGH_WATER = 256 * 1024
"""The size of the waiting parts of a body, in bytes, above which the server must pause."""

_PIECE = 256 * 1024
"""Larger bodies of requests are sent by pieces, in bytes: event loops copy everything that is not sent yet."""


class WireOwner(Protocol):
    """The owner of open connections."""

    def remember(self, wire: Wire) -> None:
        """Note an open connection."""

    def forget(self, wire: Wire) -> None:
        """Note a closed connection."""


class Wire(asyncio.Protocol):
    """
    The protocol of one connection. A request takes it, asks, reads the response, and gives it back or drops it.

    Large because the event loop, the parser, and the request meet here, and each byte passes through it.
    """

    __slots__ = (
        "_error", "_is_busy", "_is_full", "_is_half_sent", "_is_paused", "_loop", "_owner", "_transport", "_waiter",
        "idle_since", "response", "touched",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: WireOwner) -> None:
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._is_busy = False
        self._is_full = False
        self._is_paused = False
        self._is_half_sent = False
        self.response = ResponseParser()
        """The current response, or the last one."""
        self.touched = 0.0
        """The time of the last bytes from the server, in the time of the event loop."""
        self.idle_since = 0.0
        """The time when it became unused, in the time of the event loop."""

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the open connection."""
        self._transport = transport  # type: ignore[assignment]  # uvloop has its own classes
        self._owner.remember(self)

    def data_received(self, data: bytes) -> None:
        """Take a part of the response."""
        if self._error is not None:
            return
        response = self.response
        if not self._is_busy or response.is_complete:
            self.fail(ProtocolError("The server has sent data without a request"))
            return
        self.touched = self._loop.time()
        try:
            response.feed(data)
        except ProtocolError as exc:
            self.fail(exc)
            return
        if response.size > _HIGH_WATER and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Note the end from the server, proper or not."""
        if self._is_busy and self._error is None and not self._is_cut():
            self.response.finish()
        self._lose(None)
        return False

    def _is_cut(self) -> bool:
        """Tell if TLS ended without a goodbye, as if somebody on the way has cut it."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if tls is None:
            return False
        try:
            return bool(tls.read(1))
        except ssl.SSLZeroReturnError:
            return False
        except ssl.SSLError:
            return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the closed connection."""
        self._lose(exc)
        self.response.close()
        self._owner.forget(self)

    def _lose(self, exc: Exception | None) -> None:
        if self._error is None:
            text = "Server disconnected" if exc is None else str(exc) or type(exc).__name__
            if self.response.is_begun:
                text = f"The response is not complete: {text}"
            error = DisconnectedError(text)
            error.__cause__ = None if exc is None else exc.with_traceback(None)
            self.fail(error)

    def pause_writing(self) -> None:
        """Stop sending."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Go on with sending."""
        self._is_full = False
        self._wake()

    # The request's side.

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent: the last one has ended, and the connection is open."""
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    def has_unread(self) -> bool:
        """Tell if unread bytes have come. Without a request, they are the end of the connection, or worse."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None or not hasattr(select, "poll"):  # Windows has no poll()
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    async def ask(self, head: bytes, body: bytes | None) -> None:
        """Send a request, and wait for the headers of the response. If they come early, do not send the rest."""
        response = self.response
        response.begin()
        self._is_busy = True
        self.touched = self._loop.time()
        if body is None or len(body) < _PIECE:
            self._write(head if body is None else head + body)
        else:
            self._is_half_sent = True
            await self._send_by_pieces(head, memoryview(body))
        while not response.status:
            await self._wait()

    async def _send_by_pieces(self, head: bytes, body: memoryview) -> None:
        self._write(head)
        for start in range(0, len(body), _PIECE):
            while self._is_full and not self.response.status:
                await self._wait()
            if self.response.status:
                return
            self._write(body[start : start + _PIECE])
        self._is_half_sent = False

    def _write(self, data: bytes | memoryview) -> None:
        self._check()
        if self._transport is not None:
            self._transport.write(data)

    async def read_chunk(self) -> bytes:
        """Wait for the next bytes of the body, and take them; nothing at the end."""
        response = self.response
        while not response.chunks:
            if response.is_complete:
                return b""
            await self._wait()
        data = response.take()
        if self._is_paused and self._error is None and self._transport is not None:
            self._is_paused = False
            self.touched = self._loop.time()  # the silence was ours
            self._transport.resume_reading()
        return data

    async def _wait(self) -> None:
        """Wait until anything happens. Raises :class:`OSError` if the connection has failed."""
        self._check()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _check(self) -> None:
        """Raise the error of the connection, if there is any."""
        if self._error is not None:
            raise _copy(self._error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def is_late(self, inactivity: float, now: float) -> bool:
        """Tell if the server has been silent for so many seconds while a request waits for it."""
        return not self._is_paused and self.touched + inactivity <= now

    def give_back(self) -> bool:
        """End the request. Return whether another one can be sent; otherwise, drop the connection."""
        self._is_busy = False
        response = self.response
        if response.is_complete and response.can_stay and not self._is_half_sent and self.is_usable:
            return True
        self.fail(DisconnectedError("The connection is dropped"))
        return False

    def fail(self, error: OSError) -> None:
        """Close the connection. A request that waits for its response gets the error."""
        if self._error is None:
            self._error = _copy(error)
            self._loop.call_soon(self._close)  # event loops do not expect it while they deliver data
            self._wake()

    def _close(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() and self._transport.get_extra_info("ssl_object") is None:
            self._transport.abort()  # the server may never read the rest; TLS has a time limit of its own
            return
        if self._is_paused:
            self._transport.resume_reading()  # the goodbye must be read; all else is ignored
        self._transport.close()

    def abort(self) -> None:
        """Break the connection without a goodbye."""
        if self._transport is not None:
            self._transport.abort()


def _copy(error: OSError) -> OSError:
    """Copy the error without its traceback: the frames of a raised error would hold the wire."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
