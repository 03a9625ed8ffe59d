"""
Attackers: they hold as many connections as they can, and come back when they are thrown out.

It is a program of its own, as those connections need descriptors, too: ``attackers.py PORT COUNT CONTENT``, where the
content (hexadecimal, maybe empty) is sent to begin with, and never continued. It says how many connections were made.
It runs with a lower priority than the rest, as real attackers do not take the CPU time of their victims.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import selectors
import signal
import socket
import sys
import time

PATIENCE = 5.0
"""After being thrown out, in seconds: how long attackers need to notice that and to come back."""

PACE = 500.0
"""How many connections a second to make, at most: each program of its own."""


class Attack:
    def __init__(self, port: int, count: int, content: bytes) -> None:
        self.made = 0
        self._port = port
        self._content = content
        self._selector = selectors.DefaultSelector()
        self._waiting = [0.0] * count
        self._next = time.monotonic()

    def run(self) -> None:
        while True:
            now = time.monotonic()
            self._next = max(self._next, now - 0.1)  # what was missed, is not made up for
            while self._waiting and max(self._waiting[0], self._next) <= now:
                self._connect()
                self._next += 1 / PACE
            for key, events in self._selector.select(0.02):
                self._proceed(key.fileobj, events)

    def _connect(self) -> None:
        heapq.heappop(self._waiting)
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.connect_ex(("127.0.0.1", self._port))
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _proceed(self, sock: object, events: int) -> None:
        assert isinstance(sock, socket.socket)
        try:
            if events & selectors.EVENT_WRITE:
                if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, "not connected")
                sock.send(self._content)
                self.made += 1
                self._selector.modify(sock, selectors.EVENT_READ)
            elif not sock.recv(65536):
                raise OSError("closed")
        except OSError:
            self._selector.unregister(sock)
            sock.close()
            heapq.heappush(self._waiting, time.monotonic() + PATIENCE)


def main() -> None:
    os.nice(10)
    attack = Attack(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        attack.run()
    finally:
        sys.stdout.write(f"{attack.made}\n")


if __name__ == "__main__":
    main()
