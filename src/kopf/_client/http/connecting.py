"""
Connecting: TCP and TLS to a server, with its limits of time.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from kopf._client.http.server_address import ServerAddress
from kopf._client.http.sockets import open_socket
from kopf._client.http.transport import ConnectTimeoutError, UnreachableError
from kopf._client.http.wire import Wire

FAREWELL_TIMEOUT = 1.0
"""How long the goodbyes of TLS may take, in seconds: a server that does not respond must not hold the exit."""


class Connector:
    """How to connect to a server."""

    def __init__(self, address: ServerAddress, context: ssl.SSLContext | None, server_hostname: str | None) -> None:
        self._address = address
        self._options: dict[str, Any] = {}
        if context is not None:
            self._options = {
                "ssl": context,
                "server_hostname": server_hostname or address.host,
                "ssl_shutdown_timeout": FAREWELL_TIMEOUT,
            }

    async def connect(self, wire: Wire, timeout: float | None, deadline: float | None) -> None:
        """
        Open the connection within the timeout, in seconds, and before the deadline, in the time of the event loop.

        Raises :class:`UnreachableError` if it is not possible, :class:`TimeoutError` after the deadline.
        """
        loop = asyncio.get_running_loop()
        limit = None if timeout is None else loop.time() + timeout
        is_by_deadline = deadline is not None and (limit is None or deadline < limit)
        address = self._address
        try:
            async with asyncio.timeout_at(deadline if is_by_deadline else limit) as limiting:
                sock = await open_socket(address.host, address.port)
                await loop.create_connection(lambda: wire, sock=sock, **self._options)
        except (OSError, UnicodeError) as exc:  # the latter is for names that cannot be
            if not limiting.expired():
                raise UnreachableError(f"Cannot connect to host {address.host}:{address.port} [{_tell(exc)}]") from exc
            if is_by_deadline:
                raise
            raise ConnectTimeoutError(f"Connection timeout to host {address.url}") from exc


def _tell(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return f"{type(exc).__name__}: {exc}"
    return str(exc) or type(exc).__name__
