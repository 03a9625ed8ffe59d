"""
The guard against blocking: handlers that sleep in the real time are noticed in seconds, not in hours.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from kopf._virtual_time.patience import Patience, SimulationError
from kopf._virtual_time.virtual_time import VirtualTimeLoop

_SIGNAL = getattr(signal, "SIGUSR2", None)


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
