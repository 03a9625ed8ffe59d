"""
Jobs for Kopf's own threads, with results that go straight to the event loop.

The usual ``run_in_executor`` has two connected futures for each call, and wakes the event loop up for each result. Here
is one future for each call, and one wake-up for all results that are ready.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from kopf._settings.threads import HandlerThreads


class LoopThreads(concurrent.futures.Executor):
    """The threads as an executor for ``run_in_executor`` of one event loop, and for nothing else."""

    def __init__(self, threads: HandlerThreads, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._threads = threads
        self._loop = loop
        self._finished: deque[ThreadJob] = deque()
        self._is_announced = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a thread. The event loop takes the future as it is, because it is its own."""
        fn = functools.partial(fn, *args, **kwargs) if args or kwargs else fn
        job = ThreadJob(fn, self._loop.create_future(), self.send)
        self._threads.start(job)
        return job.future

    def send(self, job: ThreadJob) -> None:
        """Let the event loop settle the job; for use in threads."""
        self._finished.append(job)
        if not self._is_announced:  # if two threads see it at once, the second wake-up is for nothing
            self._is_announced = True
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:
                if not self._loop.is_closed():  # otherwise, nothing waits for the result anymore
                    raise

    def _settle(self) -> None:
        self._is_announced = False  # first: jobs that the loop below misses are announced again
        while self._finished:
            self._finished.popleft().settle()


class ThreadJob:
    """
    A call of a function in a thread. Code in the event loop awaits its future, or cancels it.

    When the call is over, the job passes itself to ``send``, which settles it in the event loop.
    """

    __slots__ = ("_error", "_fn", "_result", "_send", "future")

    def __init__(self, fn: Callable[[], Any], future: asyncio.Future[Any], send: Callable[[ThreadJob], None]) -> None:
        self._fn = fn
        self._send = send
        self._result: Any = None
        self._error: BaseException | None = None
        self.future = future

    def run(self) -> None:
        """Call the function in the thread, unless the future is cancelled."""
        if self.future.cancelled():
            return
        try:
            self._result = self._fn()
        except BaseException as e:
            self._error = e
        self._send(self)
        del self  # the traceback of the error holds this frame: they must not hold each other

    def cancel(self) -> None:
        """Cancel the job, as it gets no thread."""
        self._error = asyncio.CancelledError()
        self._send(self)

    def settle(self) -> None:
        """Put the result into the future, in the event loop."""
        settle(self.future, self._result, self._error)


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Put the result of a function, or its error, into the future, in the event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)
