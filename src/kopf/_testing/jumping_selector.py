"""
The selector of a loop with virtual time: where other loops sleep, it moves the clock.
"""

from __future__ import annotations

import os
import selectors
import socket
import stat
import time
from typing import Any, Protocol

from kopf._testing.patience import Patience

# How long the kernel may take to carry bytes over the loopback, in seconds, and the same if the machine is busy.
_LOOPBACK_GRACE = 0.0001
_BUSY_GRACE = 0.002
_PAUSE = 0.1
"""How often it is looked whether the threads that are waited for are stuck, in seconds."""
_TURNS = 100_000
"""After how many turns in a row with something to do at once, somebody is told. 1,000 new objects take about 5,000."""


class Jumping(Protocol):
    """The loop, as far as it is needed here."""

    beats: int
    patience: float

    @property
    def is_virtual(self) -> bool: ...
    @property
    def is_working(self) -> bool: ...
    @property
    def own_pipe(self) -> int: ...
    def jump(self, seconds: float) -> None: ...
    def report_stuck(self) -> None: ...
    def on_busy(self) -> None: ...
    def release_idlers(self) -> bool: ...


class JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of sleeping."""

    def __init__(self, loop: Jumping) -> None:
        super().__init__()
        self._loop = loop
        self._passive: set[int] = set()
        self._busy_turns = 0
        """How many turns of the loop in a row there was something to do at once, so that no time could pass."""
        self._patience = Patience()
        """Since something has come from the outside, or nothing was to be waited for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.beats += 1
        if not self._loop.is_virtual:
            return self._select(timeout)
        if timeout is not None and timeout <= 0:
            self._busy_turns += 1
            if self._busy_turns % _TURNS == 0:
                self._loop.on_busy()
            return self._select(timeout)
        self._busy_turns = 0
        if self._loop.is_working:
            events = self._select(_PAUSE)
            if self._are_foreign(events):
                self._patience.renew()  # somebody is served by this loop, perhaps that very thread
            elif self._patience.is_over(self._loop.patience, pause=_PAUSE):
                self._loop.report_stuck()
            return events
        self._patience.renew()
        events = self._select(0)
        if not events and self._has_connections():
            since = time.monotonic()
            time.sleep(_LOOPBACK_GRACE)
            if time.monotonic() - since > 5 * _LOOPBACK_GRACE:
                time.sleep(_BUSY_GRACE)
            events = self._select(0)
        if events or self._loop.release_idlers():
            return events
        if timeout is None:  # there is no timer: only somebody outside can change anything
            return self._select(None)
        self._loop.jump(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if _is_listening(key.fd):
            self._passive.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._passive.discard(key.fd)
        return key

    def has_foreign_events(self) -> bool:
        """Whether something has come from anywhere but from other threads of this loop."""
        return self._are_foreign(self._select(0))

    def _are_foreign(self, events: list[tuple[selectors.SelectorKey, int]]) -> bool:
        own = self._loop.own_pipe  # it is written to by other threads of this process, e.g. watchdogs
        return any(key.fd != own for key, _ in events)

    def _has_connections(self) -> bool:
        """Whether there are sockets by which data can come: neither the listening ones nor the loop's own pipe."""
        return len(self.get_map()) > len(self._passive) + 1

    def _select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return events


def _is_listening(fd: int) -> bool:
    """Whether it is a socket that only accepts connections: who connects to it from this loop, is there, too."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as sock:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
