"""
Threads of a loop with virtual time: they run one at a time, and the loop waits for them.

Unless they talk to a server in this very loop, which is then let work. A thread that sleeps in the virtual time (see
`ThreadedJob.sleep`) does nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVarTuple

from kopf._handlers.thread_pools import settle
from kopf._settings.threads import HandlerThreads
from kopf._virtual_time.patience import Patience

_Ts = TypeVarTuple("_Ts")

_ATTENTION = 0.001
"""How often it is looked, in seconds, if a thread that is waited for wants something from a server in this loop."""

thread_owner: contextvars.ContextVar[object] = contextvars.ContextVar("thread_owner", default=None)
"""On whose behalf functions are run in threads."""

thread_purpose: contextvars.ContextVar[str] = contextvars.ContextVar("thread_purpose", default="")
"""The purpose of the functions in threads, if their order matters."""

_thread = threading.local()


class Abandoned(BaseException):
    """Ends a function in a thread if nobody needs it any more."""


class ThreadedJob:
    """
    A function in a thread, which works in turn with the loop: either this one or that one.

    Large because both sides share its state, under one lock.
    """

    def __init__(self, fn: Callable[[], Any], loop: ThreadedLoop) -> None:
        self.loop = loop
        self.future = loop.create_future()
        self.rests = threading.Event()
        """Whether the function is over or asleep."""
        self.is_attended = False
        """Whether the loop waits for exactly this thread, and takes by itself what it comes to."""
        self.is_over = False
        self.is_awaited = True
        """Whether the loop does not know yet what it has come to; for the loop only. Until then, no time may pass."""
        self.is_reported = False
        self.timer: asyncio.TimerHandle | None = None
        self.owner = thread_owner.get()
        self.purpose = thread_purpose.get()
        self._fn = fn
        self._is_abandoned = False
        self._lock = threading.Lock()
        self._alarm = threading.Event()
        self._sleep: float | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._ident: int | None = None
        self._woken = time.monotonic()

    @property
    def is_awake(self) -> bool:
        """Whether it does something now."""
        return not self.rests.is_set()

    @property
    def working_time(self) -> float:
        """For how long it has not slept, in seconds of the real time."""
        return time.monotonic() - self._woken

    @staticmethod
    def current() -> ThreadedJob | None:
        """Give the job that is run by the current thread, if any."""
        job: ThreadedJob | None = getattr(_thread, "job", None)
        return job

    # In the thread.

    def run(self) -> None:
        """Call the function."""
        self._ident = threading.get_ident()
        _thread.job = self
        try:
            self._result = self._fn()
        except BaseException as e:
            self._error = e
        finally:
            _thread.job = None
        self.is_over = True
        self._rest()

    def sleep(self, seconds: float | None) -> None:
        """Sleep in the virtual time, or until the loop wakes it up; there may be no other reason."""
        self._alarm.clear()
        if self._is_abandoned:
            raise Abandoned
        self._sleep = seconds
        self._rest()
        self._alarm.wait()
        if self._is_abandoned:
            raise Abandoned

    def _rest(self) -> None:
        with self._lock:
            self.rests.set()
            if self.is_attended:
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
            self.loop.call_soon_threadsafe(self.loop.accept, self)

    # In the loop.

    def cancel(self) -> None:
        """There will be no thread for it."""
        self.future.cancel()

    def abandon(self) -> None:
        """Let it end when it sleeps the next time; the caller must wake up a sleeping one."""
        self._is_abandoned = True

    def leave_alone(self) -> bool:
        """Stop attending to it. It is not possible if it has just come to something."""
        with self._lock:
            self.is_attended = self.rests.is_set()
            return not self.is_attended

    def take_sleep(self) -> float | None:
        """Tell for how long it is to sleep, once; none if that is up to somebody who wakes it up."""
        seconds, self._sleep = self._sleep, None
        return seconds

    def wake_up(self) -> bool:
        """Let it go on, if it sleeps; tell if it does."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.is_awake or self.is_over:
            return False
        self.is_awaited, self._sleep, self._woken = True, None, time.monotonic()
        self.rests.clear()
        self._alarm.set()
        return True

    def settle(self) -> None:
        """Pass the result to its waiters."""
        settle(self.future, self._result, self._error)

    def describe(self) -> str:
        """Show where the thread is now."""
        frame = sys._current_frames().get(self._ident or 0)
        lines = traceback.format_stack(frame) if frame is not None else ["(the thread has not begun yet)\n"]
        own = __file__.rpartition("/")[2]
        first = max((i for i, line in enumerate(lines) if own in line and "in run" in line), default=-1)
        return "".join(lines[first + 1 :])


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


class ThreadedLoop(asyncio.SelectorEventLoop):
    """
    An event loop that works in turn with its threads.

    Large because it is an event loop: what happens in it, is up to nobody else.
    """

    def __init__(self, selector: selectors.BaseSelector, patience: float) -> None:
        self.is_virtual = True
        self.patience = patience
        """For how long a thread may work until it is considered stuck, in seconds of the real time."""
        self.is_attending = False
        """Whether it waits for a thread right now."""
        self.on_stuck: Callable[[str], None] | None = None
        """Who is told if a thread works for too long: what it does. Without anybody, it is waited for, however long."""
        self.overlaps: set[tuple[str, str]] = set()
        """The pairs of actions that two threads did at once, in an unknown order."""
        self._jobs: dict[ThreadedJob, None] = {}
        self._threads = HandlerThreads(sys.maxsize, name="kopf-simulation")
        super().__init__(selector)

    def has_foreign_events(self) -> bool:
        """Whether something has come from anywhere but from other threads of this loop."""
        raise NotImplementedError

    @property
    def is_working(self) -> bool:
        """Whether some thread runs a function for this loop, and is not asleep; threads that never end do not count."""
        return any(job.is_awaited and not job.is_reported for job in self._jobs)

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[*_Ts], Any], *args: *_Ts
    ) -> asyncio.Future[Any]:
        # Whatever executor it is for: their threads would come and go in their own order.
        job = ThreadedJob(lambda: func(*args), self)
        self._jobs[job] = None
        self._note_overlaps(job)
        self._threads.start(job)
        if self.is_virtual:  # otherwise, all else goes on meanwhile, as in any loop
            self._attend(job)
        return job.future

    def wake_up(self, job: ThreadedJob) -> None:
        """Let a sleeping thread go on, and wait for it; in this loop's thread."""
        if job.wake_up():
            self._note_overlaps(job)
            self._attend(job)

    def _note_overlaps(self, job: ThreadedJob) -> None:
        for other in self._find_company(job):
            if job.purpose and other.purpose:
                self.overlaps.add((min(job.purpose, other.purpose), max(job.purpose, other.purpose)))

    def accept(self, job: ThreadedJob) -> None:
        """Take what a thread has come to: the end of its function, or a sleep."""
        if job.is_awake:  # it has been woken up before this could be taken
            return
        job.is_awaited = False
        if job.is_over:
            self._jobs.pop(job, None)
            job.settle()
        elif (seconds := job.take_sleep()) is not None:
            job.timer = self.call_later(seconds, self.wake_up, job)

    def _attend(self, job: ThreadedJob) -> None:
        """Wait until the thread ends or falls asleep, unless it needs this loop first."""
        job.is_attended = self.is_attending = True
        try:
            self._wait_for(job)
        finally:
            self.is_attending = False

    def _wait_for(self, job: ThreadedJob) -> None:
        patience = Patience()
        while not job.rests.wait(_ATTENTION):
            is_stuck = patience.is_over(self.patience, pause=_ATTENTION)
            if (is_stuck or self._is_needed_besides(job)) and job.leave_alone():
                if is_stuck:
                    self.report_stuck()
                return
        self.accept(job)

    def _is_needed_besides(self, job: ThreadedJob) -> bool:
        """Whether somebody waits for the loop: that thread by the network, or another one, whose lock it may need."""
        return any(self._find_company(job)) or self.has_foreign_events()

    def _find_company(self, job: ThreadedJob) -> Iterator[ThreadedJob]:
        """Give the other threads that work now."""
        return (other for other in self._jobs if other is not job and other.is_awake and not other.is_reported)

    def report_stuck(self) -> None:
        """Tell of the threads that work for too long."""
        if self.on_stuck is None:
            return
        for job in self._jobs:
            if job.is_awake and not job.is_reported and job.working_time >= self.patience:
                job.is_reported = True
                self.on_stuck(
                    f"A function in a thread has been running for {self.patience:g} seconds of the real time, "
                    f"so the simulation cannot go on:\n{job.describe()}"
                )

    def abandon(self, owner: object) -> None:
        """Let the threads of that owner end as soon as they sleep: nobody needs what they do any more."""
        for job in [*self._jobs]:
            if job.owner is owner:
                self._abandon(job)

    def _abandon(self, job: ThreadedJob) -> None:
        job.abandon()
        self.wake_up(job)

    def close(self) -> None:
        for job in [*self._jobs]:
            self._abandon(job)
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()
