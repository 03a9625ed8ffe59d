"""
Connecting: TCP and TLS to a server, with its limits of time.

If the first address of the host does not answer soon, the next one is tried, too (RFC 8305). ``asyncio`` can do it, but
loses the sockets of those who are cancelled in the middle of it; ``uvloop`` cannot.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import ssl
from typing import Any

from kopf._client.http.server_address import ServerAddress
from kopf._client.http.transport import ConnectTimeoutError, UnreachableError
from kopf._client.http.wire import Wire

FAREWELL_TIMEOUT = 1.0
"""How long the goodbyes of TLS may take, in seconds: a server that does not respond must not hold the exit."""


_NEXT_ADDRESS_DELAY = 0.25
"""How long the next address waits for the previous ones, in seconds."""

_LITERAL = re.compile(r"[0-9.]+|.*:.*")

Address = tuple[socket.AddressFamily, Any]


async def _open_socket(host: str, port: int) -> socket.socket:
    """Connect to the host. Raises :class:`OSError` of the first address if all of them fail."""
    addresses = await _resolve(host, port)
    sockets: list[socket.socket] = []
    connected: socket.socket | None = None
    try:
        connected = await (_connect(addresses[0], sockets) if len(addresses) == 1 else _race(addresses, sockets))
        return connected
    finally:
        for sock in sockets:
            if sock is not connected:
                sock.close()


async def _resolve(host: str, port: int) -> list[Address]:
    if _LITERAL.fullmatch(host):
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families = dict.fromkeys(item[0] for item in found)  # in the order of the resolver, which knows what is preferred
    by_families = [[(item[0], item[4]) for item in found if item[0] == family] for family in families]
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*by_families))
    return [address for address in mixed if address is not None]


async def _connect(address: Address, sockets: list[socket.socket]) -> socket.socket:
    sock = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so it is not to delay small packets
    sockets.append(sock)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, address[1])
    return sock


async def _race(addresses: list[Address], sockets: list[socket.socket]) -> socket.socket:
    running: list[asyncio.Task[socket.socket]] = []
    try:
        for number, address in enumerate(addresses, 1):
            running.append(asyncio.create_task(_connect(address, sockets)))
            while any(not task.done() for task in running):
                pending = [task for task in running if not task.done()]
                delay = None if number == len(addresses) else _NEXT_ADDRESS_DELAY
                done, _ = await asyncio.wait(pending, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.exception() is None:
                        return task.result()
                if delay is not None:
                    break
        return running[0].result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


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
                sock = await _open_socket(address.host, address.port)
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
