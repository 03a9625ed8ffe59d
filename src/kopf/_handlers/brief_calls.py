"""
Brief calls: functions that mostly take microseconds, but must not hold the event loop if they take longer.

To pass a function to a thread and back costs much more than such a function itself. So, all those that are called at
about the same time go to one thread, which calls them one by one. If it has not come to the last one soon, another
thread helps with those that are left, then one more, and so on: none of the functions waits for one that hangs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable
from typing import Any

from kopf._handlers.thread_jobs import ThreadJob, settle
from kopf._settings.threads import ELASTIC_LIMIT

PATIENCE = 0.05
"""How long the functions are left to the threads that are there, in seconds, until one more thread is added."""


class BriefCalls:
    """The functions of one event loop that are to be called, and their threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, choose: Callable[[], concurrent.futures.Executor]) -> None:
        self._loop = loop
        self._choose = choose
        self._waiting: deque[ThreadJob] = deque()
        self._finished: deque[ThreadJob] = deque()
        self.send = self._finished.append
        """What the jobs tell that they are done; for the threads."""
        self._threads = 0
        self._is_planned = False
        self._timer: asyncio.TimerHandle | None = None

    def call(self, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        """Have the function called together with those that are called right now."""
        job = ThreadJob(fn, self._loop.create_future(), self)
        self._waiting.append(job)
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._begin)
        return job.future

    def _begin(self) -> None:
        self._is_planned = False
        self._add_thread()
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _add_thread(self) -> None:
        if self._threads >= ELASTIC_LIMIT:
            return
        try:
            thread = self._loop.run_in_executor(self._choose(), self._work)
        except RuntimeError as e:  # neither the system nor the executor has any
            if not self._threads:
                self._fail(e)
            return
        self._threads += 1
        thread.add_done_callback(self._end_thread)

    def _work(self) -> None:
        """Call everything that is there; in the thread."""
        while self._waiting:
            try:
                job = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            job.run()
            del job  # the arguments & the results are not of this thread anymore

    def _end_thread(self, thread: asyncio.Future[None]) -> None:
        self._threads -= 1
        self._settle()
        if thread.cancelled():
            self._fail(asyncio.CancelledError())
        elif self._waiting:  # they have come since it has looked there for the last time
            self._add_thread()
        elif self._timer is not None and not self._threads:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """See how far it has come."""
        self._timer = None
        self._settle()
        if self._waiting:
            self._add_thread()
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _settle(self) -> None:
        while self._finished:
            self._finished.popleft().settle()

    def _fail(self, error: BaseException) -> None:
        while self._waiting:
            settle(self._waiting.popleft().future, None, error)
