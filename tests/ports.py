"""Ports for servers that have to be told in advance where to listen."""

from __future__ import annotations

import contextlib
import random
import socket

_PORTS = range(10_000, 20_000)
"""The system gives these to nobody who has not asked for them, unlike those that it chooses itself."""


def find_free_port() -> int:
    """Find a port that is free, and that nobody takes by chance until it is used."""
    numbers = random.SystemRandom()  # the other processes of the tests may be seeded in the same way
    while True:
        port = numbers.choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", port))
            return port
