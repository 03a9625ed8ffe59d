"""
Listening: sockets of all addresses that a name stands for, all with the same port.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

_UNSUPPORTED = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
_BACKLOG = 4096
_ATTEMPTS = 10
"""How many free ports are tried: what is free at one address, can be taken at another one."""


def open_sockets(addr: str | None, port: int) -> list[socket.socket]:
    """
    Listen at the host name or the IP address; ``None`` and empty strings are for all addresses of the machine.

    With port 0, a free one is chosen; it is the same for all sockets. Addresses that this machine cannot have
    (IPv6 where it is switched off) are skipped, unless there are no others.

    Raises :class:`OSError` if it is impossible, e.g. if the port is in use.
    """
    infos = socket.getaddrinfo(addr or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    attempts = 1 if port else _ATTEMPTS
    while True:
        attempts -= 1
        try:
            return _open_all([*dict.fromkeys(infos)], port)
        except OSError as e:
            if e.errno == errno.EADDRINUSE and attempts:
                continue
            text = f"cannot listen at {addr or 'all addresses'}, port {port}: {e.strerror or e}"
            raise OSError(e.errno, text) from e


def _open_all(infos: list[tuple[Any, ...]], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        for family, _, protocol, _, address in infos:
            chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                sockets.append(_open_socket(family, protocol, (address[0], chosen, *address[2:])))
            except OSError as e:
                if e.errno not in _UNSUPPORTED:
                    raise
                problem = e
        if not sockets:
            raise problem or OSError(errno.EADDRNOTAVAIL, "no addresses")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _open_socket(family: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
