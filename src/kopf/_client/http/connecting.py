"""
Connecting: TCP and TLS to a server, within limits of time.

If the first address of the host does not answer soon, the next one is tried as well (RFC 8305).
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import Any

import aiohappyeyeballs

from kopf._client.http.server_address import ServerAddress
from kopf._client.http.transport import ConnectTimeoutError, UnreachableError
from kopf._client.http.wire import Wire

FAREWELL_TIMEOUT = 1.0
"""The longest time of a TLS goodbye, in seconds: a server that does not respond must not delay the exit."""

_NEXT_ADDRESS_DELAY = 0.25
"""The head start of each address before the next one, in seconds."""

_LITERAL = re.compile(r"[0-9.]+|.*:.*")


async def _open_socket(host: str, port: int) -> socket.socket:
    """
    Connect to the first address that answers. Raises :class:`OSError` if none does.

    By a library, because event loops do it worse: that of ``asyncio`` loses the sockets of cancelled attempts, and
    ``uvloop`` tries one address after another.
    """
    if _LITERAL.fullmatch(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        addresses: list[Any] = [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    else:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_DELAY)


class Connector:
    """The way to a server."""

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
        Open the connection within the timeout (seconds) and before the deadline (in the time of the event loop).

        Raises :class:`UnreachableError` if this fails, and :class:`TimeoutError` after the deadline.
        """
        loop = asyncio.get_running_loop()
        limit = None if timeout is None else loop.time() + timeout
        is_by_deadline = deadline is not None and (limit is None or deadline < limit)
        address = self._address
        try:
            async with asyncio.timeout_at(deadline if is_by_deadline else limit) as limiting:
                sock = await _open_socket(address.host, address.port)
                await loop.create_connection(lambda: wire, sock=sock, **self._options)
        except (OSError, UnicodeError) as exc:  # the latter is for names that cannot exist
            if not limiting.expired():
                text = f"Cannot connect to host {address.host}:{address.port} [{_tell(exc)}]"
                # With no traceback: the frames of the library hold the error, and so the error would hold the wire.
                raise UnreachableError(text) from exc.with_traceback(None)
            if is_by_deadline:
                raise
            raise ConnectTimeoutError(f"Connection timeout to host {address.url}") from exc


def _tell(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return f"{type(exc).__name__}: {exc}"
    return str(exc) or type(exc).__name__
