"""
Closings: the TCP connections of a session are followed until they are really closed.

TLS ends with goodbyes, which are exchanged in the background when a response is abandoned (a watch stream when it is
stopped, or a request that is cancelled). Nobody waits for them: neither the session when it is closed, nor the event
loop when it ends right afterwards. So the sockets would be left open. They cannot be just broken instead: a transport
that is broken while it has something to read, is an error with a traceback in some event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiohttp
from aiohttp.connector import Connection

_FAREWELL_TIMEOUT = 1.0
"""How long the goodbyes may take, in seconds: a server that does not respond must not hold the exit."""


class Closings:
    """The connections of one session that are not closed yet."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Future[None], asyncio.Transport] = {}

    def follow(self, connection: Connection) -> None:
        """Remember the connection until it is closed."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            return
        closed: asyncio.Future[None] | None = getattr(protocol, "closed", None)  # older versions of aiohttp have none
        if closed is not None and closed not in self._pending:
            self._pending[closed] = transport
            closed.add_done_callback(self._forget)

    def _forget(self, closed: asyncio.Future[None]) -> None:
        del self._pending[closed]
        if not closed.cancelled():
            closed.exception()  # whatever it is, it is closed; otherwise, it is reported as never retrieved

    async def wait(self) -> None:
        """Wait until all connections are closed; break those that are not closed in time."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=_FAREWELL_TIMEOUT)
        for transport in list(self._pending.values()):
            transport.abort()  # those of uvloop do have it, though they are of no class of asyncio
        if self._pending:
            await asyncio.wait(self._pending, timeout=_FAREWELL_TIMEOUT)

    def make_response_class(self) -> type[aiohttp.ClientResponse]:
        """Make a class of responses whose connections are followed."""

        class FollowedResponse(aiohttp.ClientResponse):
            """A response whose connection is followed."""

            def start(response, connection: Connection) -> Coroutine[Any, Any, aiohttp.ClientResponse]:
                """Begin to read the response. Both the closings and the response are selves here."""
                self.follow(connection)
                return super().start(connection)

        return FollowedResponse
