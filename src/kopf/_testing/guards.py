"""
Guards: handlers that block the simulation by sleeping in the real time are noticed in seconds, not in hours.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import SupportsFloat, SupportsIndex

from kopf._testing.patience import Patience
from kopf._testing.simulation_errors import SimulationError
from kopf._testing.virtual_time import ThreadedJob, VirtualTimeLoop

_SIGNAL = getattr(signal, "SIGUSR2", None)
_LONGEST_SLEEP = 0.5
"""For how long a coroutine may block the loop by sleeping, in seconds: it may be a test's own small delay."""


@contextlib.contextmanager
def sleeping_virtually(loop: VirtualTimeLoop) -> Iterator[None]:
    """
    Let ``time.sleep()`` take the virtual time in the threads of synchronous handlers, and fail in coroutines.

    Those who have imported the function itself (``from time import sleep``) do not get there: see `BlockingGuard`.
    """
    real_sleep, loop_thread = time.sleep, threading.get_ident()

    def sleep(seconds: SupportsFloat | SupportsIndex, /) -> None:
        seconds = float(seconds)
        job = ThreadedJob.current()
        if job is not None and job.loop.is_virtual:
            job.sleep(max(0.0, seconds))
            return
        if threading.get_ident() == loop_thread and seconds > _LONGEST_SLEEP and loop.is_running() and loop.is_virtual:
            raise SimulationError(
                f"time.sleep({seconds:g}) blocks the event loop, and so the whole operator: "
                "use `await asyncio.sleep()` in coroutines, or make the function synchronous."
            )
        real_sleep(seconds)

    time.sleep = sleep
    try:
        yield
    finally:
        time.sleep = real_sleep


class BlockingGuard:
    """
    Watches from a thread of its own if the loop is blocked, and interrupts what blocks it.

    :param patience: how long it may be blocked, in seconds of the real time.
    :param report: who is told of the problem, in the thread of the loop.
    """

    def __init__(self, loop: VirtualTimeLoop, patience: float, report: Callable[[SimulationError], None]) -> None:
        self._loop = loop
        self._patience = patience
        self._report = report
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch as long as the context lasts. What blocks, can be interrupted only in the main thread."""
        can_interrupt = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
        before = signal.signal(_SIGNAL, self._interrupt) if _SIGNAL is not None and can_interrupt else None
        thread = threading.Thread(target=self._watch, args=(can_interrupt,), name="kopf-simulation-guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            if _SIGNAL is not None and can_interrupt:
                signal.signal(_SIGNAL, before)

    def _watch(self, can_interrupt: bool) -> None:
        beats, patience, pause = self._loop.beats, Patience(), min(1.0, self._patience / 4)
        while not self._ended.wait(pause):
            if self._loop.beats != beats or self._loop.is_attending or not self._loop.is_running():
                beats = self._loop.beats
                patience.renew()
            elif patience.is_over(self._patience, pause=pause):
                if _SIGNAL is not None and can_interrupt:
                    signal.pthread_kill(self._thread_id, _SIGNAL)
                else:
                    sys.stderr.write(self._explain(sys._current_frames().get(self._thread_id)))
                patience.renew()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        problem = SimulationError(self._explain(frame))
        self._report(problem)
        raise problem

    def _explain(self, frame: FrameType | None) -> str:
        stack = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""
        return (
            f"The event loop is blocked for {self._patience:g} seconds of the real time, and so is the whole operator. "
            f"Use `await` in coroutines, or make the function synchronous. It is blocked here:\n{stack}"
        )
