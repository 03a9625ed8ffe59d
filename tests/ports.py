"""Ports for servers that have to be told in advance where to listen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import random
import socket
import tempfile

_PORTS = list(range(10_000, 20_000))
"""The system gives these to nobody who has not asked for them, unlike those that it chooses itself."""
random.SystemRandom().shuffle(_PORTS)  # the other processes of the tests may be seeded in the same way

_RESERVED = os.open(pathlib.Path(tempfile.gettempdir(), f"kopf-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT)
"""The n-th byte is locked by the process of tests that has the port n; until its end."""


def find_free_port() -> int:
    """Find a port that is free, and that nobody takes by chance until it is used."""
    while True:
        port = _PORTS.pop()
        with contextlib.suppress(OSError), socket.socket() as sock:
            fcntl.lockf(_RESERVED, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            sock.bind(("", port))
            return port
