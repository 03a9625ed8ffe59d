"""Listening: sockets for all addresses of a host name, all with the same port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Any

_UNSUPPORTED = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
_BACKLOG = 4096
_ATTEMPTS = 10
"""The number of free ports to try: a port that is free at one address can be taken at another one."""


def open_sockets(addr: str | None, port: int) -> list[socket.socket]:
    """
    Listen at a host name or an IP address; ``None`` and empty strings mean all addresses of the machine.

    Port 0 means any free port, the same for all sockets. Addresses that this machine does not support (e.g. IPv6 where
    it is switched off) are skipped, unless there are no others.

    Raises :class:`OSError` if it cannot listen, e.g. if the port is in use.
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
            reason = os.strerror(e.errno) if e.errno else str(e)
            raise OSError(e.errno, f"cannot listen at {addr or 'all addresses'}, port {port}: {reason}") from e


def _open_all(infos: list[tuple[Any, ...]], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    problem = OSError(errno.EADDRNOTAVAIL, "no addresses")
    with contextlib.ExitStack() as opened:
        for family, _, _, _, address in infos:
            chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                sock = socket.create_server((address[0], chosen, *address[2:]), family=family, backlog=_BACKLOG)
            except OSError as e:
                if e.errno not in _UNSUPPORTED:
                    raise
                problem = e
            else:
                sock.setblocking(False)
                sockets.append(opened.enter_context(sock))
        if not sockets:
            raise problem
        opened.pop_all()
    return sockets
