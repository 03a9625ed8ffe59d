"""
Sockets to one of the addresses of a host: if the first one does not answer soon, the next one is tried, too (RFC 8305).

``asyncio`` can do it, but loses the sockets of those who are cancelled in the middle of it; ``uvloop`` cannot.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
from typing import Any

_NEXT_ADDRESS_DELAY = 0.25
"""How long the next address waits for the previous ones, in seconds."""

_LITERAL = re.compile(r"[0-9.]+|.*:.*")

Address = tuple[socket.AddressFamily, Any]


async def open_socket(host: str, port: int) -> socket.socket:
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
    by_families = [[(item[0], item[4]) for item in found if item[0] == family] for family in _list_families(found)]
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*by_families))
    return [address for address in mixed if address is not None]


def _list_families(found: list[Any]) -> list[socket.AddressFamily]:
    """In the order of the resolver, which knows what is preferred."""
    return list(dict.fromkeys(item[0] for item in found))


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
