"""
Virtual time: an event loop whose clock stands still while anything is being done, and jumps when nothing is.

Hours pass in no time then, and the same story comes out the same every time: neither the speed of the machine nor the
order in which threads are woken up can be seen by the clock or by the order of things.

*Something is being done* if a callback is ready, a file descriptor is readable or writable, or a thread is running a
function of this loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import selectors
import socket
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any

from kopf._virtual_time.freezable_loop import FreezableLoop
from kopf._virtual_time.patience import PATIENCE, Patience

_BEGIN = 1000.0
"""The clock in the beginning, in seconds. It is not zero, so that nobody takes it for an absent value."""
# How long the kernel may take to carry bytes over the loopback, in seconds, and the same if the machine is busy.
_LOOPBACK_GRACE = 0.0001
_BUSY_GRACE = 0.002
_PAUSE = 0.1
"""How often it is looked whether the threads that are waited for are stuck, in seconds."""
_TURNS = 100_000
"""After how many turns in a row with something to do at once, somebody is told. 1,000 new objects take about 5,000."""


def is_in_loop() -> bool:
    """Whether the code runs in an event loop, of any kind."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Future(asyncio.Future[Any]):
    """A future that sets of futures put in the same order in all stories: not by its address in the memory."""

    def __init__(self, *, loop: VirtualTimeLoop) -> None:
        self._number = loop.take_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """The same for tasks."""

    def __init__(self, coro: Any, *, loop: VirtualTimeLoop, **options: Any) -> None:
        self._number = loop.take_number()
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


def make_numbered_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task for a loop with virtual time: sets of tasks are in the same order in all stories."""
    if not isinstance(loop, VirtualTimeLoop):
        raise TypeError(f"{loop!r} has no virtual time")
    return _Task(coro, loop=loop, **options)


class VirtualTimeLoop(FreezableLoop):
    """
    An event loop with a virtual clock.

    :param patience: for how long a thread may work until it is considered stuck, in seconds of the real time.
    """

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._now = _BEGIN
        self._numbers = itertools.count()
        self._idlers: list[asyncio.Future[None]] = []
        self.beats = 0
        """How many times it has looked for something to do: if it does not go up, the loop is blocked."""
        self.on_jump: Callable[[float], None] = lambda seconds: None
        """Who is told by how many seconds the clock jumps."""
        self.on_busy: Callable[[], None] = lambda: None
        """Who is told now and then if there is always something to do at once, so that no time can pass."""
        self._virtual_selector = JumpingSelector(self)
        super().__init__(self._virtual_selector, patience)
        self.set_task_factory(make_numbered_task)

    def has_foreign_events(self) -> bool:
        return self._virtual_selector.has_foreign_events()

    def take_number(self) -> int:
        """Give the next number, to tell things apart in the order of their creation."""
        return next(self._numbers)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    @property
    def own_pipe(self) -> int:
        """The descriptor by which threads wake the loop up."""
        fd: int = self._ssock.fileno()  # type: ignore[attr-defined]  # there is no other way to learn it
        return fd

    def time(self) -> float:
        return self._now if self.is_virtual else time.monotonic() + self._now

    @property
    def elapsed(self) -> float:
        """How long it has been since the beginning, in seconds."""
        return self.time() - _BEGIN

    def jump(self, seconds: float) -> None:
        """Move the clock forward; the timers that are due by then run as if the time has passed."""
        self._now += seconds
        self.on_jump(seconds)

    @contextlib.contextmanager
    def real_time(self) -> Iterator[None]:
        """Let the time go as it really goes: for what is outside of this loop, e.g. other processes."""
        if not self.is_virtual:
            yield
            return
        since = time.monotonic()
        self.be_virtual(False)
        try:
            yield
        finally:
            self.be_virtual(True)
            self.on_jump(time.monotonic() - since)

    def be_virtual(self, is_virtual: bool) -> None:
        """Choose if the time is virtual, from now on; it goes on from where it is."""
        now = self.time()
        self.is_virtual, self._now = is_virtual, now if is_virtual else now - time.monotonic()

    async def be_idle(self) -> None:
        """Wait until all is done that can be done with no time passing."""
        if self.is_virtual:
            idler = self.create_future()
            self._idlers.append(idler)
            await idler

    def release_idlers(self) -> bool:
        """Tell the waiters that there is nothing to do now; return whether there are any."""
        idlers, self._idlers = [idler for idler in self._idlers if not idler.done()], []
        for idler in idlers:
            idler.set_result(None)
        return bool(idlers)


class JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of sleeping."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._passive: set[int] = set()
        self._busy_turns = 0
        """How many turns of the loop in a row there was something to do at once, so that no time could pass."""
        self._patience = Patience()
        """Since something has come from the outside, or there was nothing to wait for."""

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
