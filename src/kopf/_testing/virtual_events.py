"""
Virtual events: what threads wait for in the virtual time, such as the ``stopped`` of synchronous daemons.
"""

from __future__ import annotations

import threading

from kopf._testing.virtual_time import ThreadedJob


class VirtualEvent(threading.Event):
    """An event that can be waited for in the virtual time, in threads of a loop with such time."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: dict[ThreadedJob, None] = {}  # ordered: they are woken up so

    def set(self) -> None:
        super().set()
        for job in [*self._sleepers]:
            job.loop.call_soon_threadsafe(self._wake_up, job)

    def wait(self, timeout: float | None = None) -> bool:
        job = ThreadedJob.current()
        if job is None or not job.loop.is_virtual:
            return super().wait(timeout)
        self._sleepers[job] = None
        try:
            if not self.is_set():
                job.sleep(timeout)
        finally:
            self._sleepers.pop(job, None)
        return self.is_set()

    def _wake_up(self, job: ThreadedJob) -> None:
        if job in self._sleepers and job.is_awake:  # it is just about to fall asleep
            job.loop.call_soon(self._wake_up, job)
        elif job in self._sleepers:
            job.loop.wake_up(job)
