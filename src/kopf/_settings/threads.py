"""
Threads of synchronous handlers: a pool that grows while handlers wait for threads, and shrinks when idle.

Unlike the pool of Python's standard library, it can be extended while it works, its idle threads end, and hanging
functions do not delay the exit of the process.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ELASTIC_LIMIT = 100
"""The maximal number of threads, if the user does not set it."""

_IDLE_TIMEOUT = 30.0
"""The time until an idle thread ends, in seconds."""


class Job(Protocol):
    """A job for a thread."""

    def run(self) -> None:
        """Do the job. It must not raise: nothing would catch the error."""

    def cancel(self) -> None:
        """Cancel the job, as there are no more threads."""


class HandlerThreads(concurrent.futures.Executor):
    """
    The default executor of an operator.

    ``max_workers`` limits the number of threads. Without it, there are as many threads as in executors of Python;
    :meth:`expand` adds more, up to a hundred.

    Large because all of its counters change together, under one lock.
    """

    def __init__(self, max_workers: int | None = None, *, name: str = "kopf-handler") -> None:
        super().__init__()
        self.max_workers = max_workers
        """The maximal number of threads. It can change at any time."""
        self._name = name
        self._numbers = itertools.count()
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # much faster than conditions
        self._lock = threading.Lock()
        # These change together: the jobs in the queue, and the threads that wait for jobs.
        self._waiting = self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Call the function in a thread, as soon as there is a free one."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.start(_FutureJob(future, functools.partial(fn, *args, **kwargs)))
        return future

    def start(self, job: Job) -> None:
        """Run the job in a thread, as soon as there is a free one. The job itself handles its result."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("The executor is shutdown, nothing can be submitted anymore.")
            is_thread_needed = self._idle <= self._waiting
            if is_thread_needed and len(self._threads) < (self.max_workers or _get_default_size()):
                self._add_thread(job)
            else:
                self._put(job)

    def expand(self) -> None:
        """Add one more thread if jobs wait, and if the limit permits."""
        with self._lock:
            is_needed = self._waiting > self._idle and not self._is_shut_down
            if is_needed and len(self._threads) < (self.max_workers or ELASTIC_LIMIT):
                job = self._take_waiting()
                if job is not None:
                    self._add_thread(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs, and let the threads end; see :meth:`concurrent.futures.Executor.shutdown`."""
        cancelled: list[Job] = []
        with self._lock:
            self._is_shut_down = True
            while cancel_futures and (job := self._take_waiting()) is not None:
                cancelled.append(job)
            threads = [*self._threads]
            for _ in range(self._idle):
                self._queue.put(None)
        for job in cancelled:
            job.cancel()
        if wait:
            for thread in threads:
                thread.join()

    def _put(self, job: Job) -> None:
        self._waiting += 1
        self._queue.put(job)

    def _take_waiting(self) -> Job | None:
        """Take a job without waiting, if there is any. The caller must hold the lock."""
        if not self._waiting:
            return None
        try:
            job = self._queue.get_nowait()
        except queue.Empty:  # a thread has just taken it, and waits for the lock to note that
            return None
        if job is None:  # the same, but now there is a signal for an idle thread to end
            self._queue.put(None)
        else:
            self._waiting -= 1
        return job

    def _add_thread(self, job: Job) -> None:
        # Daemonic: the operator waits for handlers in its own way, and then nothing must delay the exit.
        name = f"{self._name}_{next(self._numbers)}"
        first = [job]
        thread = threading.Thread(target=self._work, args=(first,), name=name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the limit of the container or of the system
            self._threads.discard(thread)
            if not self._threads:
                raise
            self._put(job)  # it waits for the existing threads

    def _work(self, first: list[Job]) -> None:
        job: Job | None = first.pop()  # from a list, as threads hold their arguments until they end
        while job is not None:
            job.run()
            job = None  # the thread must not hold the arguments & the results
            job = self._take()

    def _take(self) -> Job | None:
        """Wait for a job; ``None`` if the thread must end."""
        with self._lock:
            job = self._take_waiting()
            if job is not None:
                return job
            if self._is_shut_down:
                self._threads.discard(threading.current_thread())
                return None
            self._idle += 1
        try:
            job = self._queue.get(timeout=_IDLE_TIMEOUT)
        except queue.Empty:
            job = None
        with self._lock:
            self._idle -= 1
            if job is not None:
                self._waiting -= 1
            else:
                job = self._take_waiting()  # it has come since then
            if job is None:
                self._threads.discard(threading.current_thread())
            return job


class _FutureJob:
    def __init__(self, future: concurrent.futures.Future[Any], fn: Callable[[], Any]) -> None:
        self._future = future
        self._fn = fn

    def cancel(self) -> None:
        self._future.cancel()

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            result = self._fn()
        except BaseException as e:
            self._future.set_exception(e)
        else:
            self._future.set_result(result)


def _get_default_size() -> int:
    """Get the number of :class:`concurrent.futures.ThreadPoolExecutor`: enough for the CPUs, and some for I/O."""
    return min(32, (os.cpu_count() or 1) + 4)
