"""
Frozen processes in an event loop with virtual time: nothing of them runs until they thaw, while the time goes on.

The context of a callback tells its process. Callbacks for a frozen process are held back. When the process goes on, it
first runs these callbacks; then its due timers ring. That is how a process goes on after SIGSTOP.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
import selectors

from kopf._virtual_time.threaded_loop import ThreadedJob, ThreadedLoop, thread_owner


class FreezableLoop(ThreadedLoop):
    """An event loop that can freeze some of the processes in it."""

    _ready: collections.deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, selector: selectors.BaseSelector, patience: float) -> None:
        super().__init__(selector, patience)
        self._held: dict[object, list[asyncio.Handle]] = {}
        """The callbacks that are held back, by owners."""

    def freeze(self, owner: object) -> None:
        """Let nothing of the owner run from the next turn of the loop on."""
        self._held.setdefault(owner, [])

    def thaw(self, owner: object) -> None:
        """Let the owner go on, if it is frozen."""
        for handle in self._held.pop(owner, []):
            if isinstance(handle, asyncio.TimerHandle) and not handle.cancelled():
                _mark(handle, True)
                heapq.heappush(self._scheduled, handle)
            elif not handle.cancelled():
                self._ready.append(handle)

    def wake_up(self, job: ThreadedJob) -> None:
        if job.owner in self._held:
            self._held[job.owner].append(asyncio.Handle(self.wake_up, (job,), self))
        else:
            super().wake_up(job)

    def _run_once(self) -> None:
        if self._held:
            self._hold_back()
        super()._run_once()  # type: ignore[misc]  # there is no other place where all callbacks pass

    def _hold_back(self) -> None:
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            self._held.get(_get_owner(handle), self._ready).append(handle)
        if timers := [timer for timer in self._scheduled if _get_owner(timer) in self._held]:
            self._scheduled = [timer for timer in self._scheduled if _get_owner(timer) not in self._held]
            heapq.heapify(self._scheduled)
            for timer in timers:
                _mark(timer, False)
                self._held[_get_owner(timer)].append(timer)


def _get_owner(handle: asyncio.Handle) -> object:
    return handle._context.get(thread_owner)  # type: ignore[attr-defined]  # it is said nowhere else


def _mark(timer: asyncio.TimerHandle, is_scheduled: bool) -> None:
    """Tell the timer whether it is scheduled: only then, the loop counts its cancellation."""
    timer._scheduled = is_scheduled  # type: ignore[attr-defined]
