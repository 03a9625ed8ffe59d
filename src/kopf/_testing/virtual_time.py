"""
Virtual time: an event loop whose clock stands still while anything is being done, and jumps when nothing is.

Hours pass in no time then, and the same story comes out the same every time: neither the speed of the machine nor the
order in which threads are woken up can be seen by the clock or by the order of things.

*Something is being done* if a callback is ready, a file descriptor is readable or writable, or a thread is running a
function of this loop. Threads run one at a time, and the loop waits for them; unless they talk to a server in this very
loop, which is then let work. A thread that sleeps in the virtual time (see `ThreadedJob.sleep`) does nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVarTuple

from kopf._handlers.thread_jobs import settle
from kopf._settings.threads import HandlerThreads
from kopf._testing.jumping_selector import JumpingSelector
from kopf._testing.patience import PATIENCE, Patience

_Ts = TypeVarTuple("_Ts")

_ATTENTION = 0.001
"""How often it is looked, in seconds, if a thread that is waited for wants something from a server in this loop."""

_BEGIN = 1000.0
"""What the clock shows in the beginning, in seconds. It is not zero, so that nobody takes it for an absent value."""


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


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """
    An event loop with a virtual clock.

    Large because it is an event loop: what happens in it, is up to nobody else.

    :param patience: for how long a thread may work until it is considered stuck, in seconds of the real time.
    """

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._now = _BEGIN
        self._is_virtual = True
        self._numbers = itertools.count()
        self._jobs: dict[ThreadedJob, None] = {}
        self._idlers: list[asyncio.Future[None]] = []
        self._threads = HandlerThreads(sys.maxsize, name="kopf-simulation")
        self.patience = patience
        self.is_attending = False
        """Whether it waits for a thread right now."""
        self.beats = 0
        """How many times it has looked for something to do: if it does not go up, the loop is blocked."""
        self.on_jump: Callable[[float], None] = lambda seconds: None
        """Who is told by how many seconds the clock jumps."""
        self.on_stuck: Callable[[str], None] | None = None
        """Who is told if a thread works for too long: what it does. Without anybody, it is waited for, however long."""
        self.overlaps: set[tuple[str, str]] = set()
        """What was done by two threads at once, by pairs: in which order they did it, nobody knows."""
        self.on_busy: Callable[[], None] = lambda: None
        """Who is told now and then if there is always something to do at once, so that no time can pass."""
        self._virtual_selector = JumpingSelector(self)
        super().__init__(self._virtual_selector)
        self.set_task_factory(make_numbered_task)

    def take_number(self) -> int:
        """Give the next number, for what is to be told apart in the order of its making."""
        return next(self._numbers)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    @property
    def own_pipe(self) -> int:
        """The descriptor by which threads wake the loop up."""
        fd: int = self._ssock.fileno()  # type: ignore[attr-defined]  # there is no other way to learn it
        return fd

    def time(self) -> float:
        return self._now if self._is_virtual else time.monotonic() + self._now

    @property
    def elapsed(self) -> float:
        """How long it has been since the beginning, in seconds."""
        return self.time() - _BEGIN

    def jump(self, seconds: float) -> None:
        """Move the clock forward; the timers that are due by then run as if the time has passed."""
        self._now += seconds
        self.on_jump(seconds)

    @property
    def is_virtual(self) -> bool:
        return self._is_virtual

    @contextlib.contextmanager
    def real_time(self) -> Iterator[None]:
        """Let the time go as it really goes: for what is outside of this loop, e.g. other processes."""
        if not self._is_virtual:
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
        self._is_virtual, self._now = is_virtual, now if is_virtual else now - time.monotonic()

    async def be_idle(self) -> None:
        """Wait until all is done that can be done with no time passing."""
        if self._is_virtual:
            idler = self.create_future()
            self._idlers.append(idler)
            await idler

    def release_idlers(self) -> bool:
        """Tell those who wait for it, that there is nothing to do now; tell if there is anybody."""
        idlers, self._idlers = [idler for idler in self._idlers if not idler.done()], []
        for idler in idlers:
            idler.set_result(None)
        return bool(idlers)

    # Threads.

    @property
    def is_working(self) -> bool:
        """Whether some thread runs a function for this loop, and is not asleep; those that never end, do not count."""
        return any(job.is_awake and not job.is_reported for job in self._jobs)

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[*_Ts], Any], *args: *_Ts
    ) -> asyncio.Future[Any]:
        # Whatever executor it is for: their threads would come and go in their own order.
        job = ThreadedJob(lambda: func(*args), self)
        self._jobs[job] = None
        self._note_overlaps(job)
        self._threads.start(job)
        if self._is_virtual:  # otherwise, all else goes on meanwhile, as in any loop
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
        if job.is_over:
            self._jobs.pop(job, None)
            job.settle()
        elif (seconds := job.take_sleep()) is not None:
            job.timer = self.call_later(seconds, self.wake_up, job)

    def _attend(self, job: ThreadedJob) -> None:
        """Wait until the thread ends or falls asleep, unless it needs something of this loop for that."""
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
        return any(self._find_company(job)) or self._virtual_selector.has_foreign_events()

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


thread_owner: contextvars.ContextVar[object] = contextvars.ContextVar("thread_owner", default=None)
"""On whose behalf functions are run in threads."""

thread_purpose: contextvars.ContextVar[str] = contextvars.ContextVar("thread_purpose", default="")
"""What functions are run in threads for, if it matters in which order."""

_thread = threading.local()


class Abandoned(BaseException):
    """What ends a function in a thread if nobody needs it any more."""


class ThreadedJob:
    """
    A function in a thread, which works in turn with the loop: either this one or that one.

    Large because both sides share its state, under one lock.
    """

    def __init__(self, fn: Callable[[], Any], loop: VirtualTimeLoop) -> None:
        self.loop = loop
        self.future = loop.create_future()
        self.rests = threading.Event()
        """Whether the function is over or asleep."""
        self.is_attended = False
        """Whether the loop waits for exactly this thread, and takes by itself what it comes to."""
        self.is_over = False
        self.is_awake = True
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
        self.is_over, self.is_awake = True, False
        self._rest()

    def sleep(self, seconds: float | None) -> None:
        """Sleep in the virtual time, or until the loop wakes it up; there may be no other reason."""
        self._alarm.clear()
        if self._is_abandoned:
            raise Abandoned
        self._sleep, self.is_awake = seconds, False
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
        """Let it end when it sleeps the next time; whoever sleeps already, is to be woken up."""
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
        self.is_awake, self._woken = True, time.monotonic()
        self.rests.clear()
        self._alarm.set()
        return True

    def settle(self) -> None:
        """Pass the result to those who wait for it."""
        settle(self.future, self._result, self._error)

    def describe(self) -> str:
        """Show where the thread is now."""
        frame = sys._current_frames().get(self._ident or 0)
        lines = traceback.format_stack(frame) if frame is not None else ["(the thread has not begun yet)\n"]
        own = __file__.rpartition("/")[2]
        first = max((i for i, line in enumerate(lines) if own in line and "in run" in line), default=-1)
        return "".join(lines[first + 1 :])
