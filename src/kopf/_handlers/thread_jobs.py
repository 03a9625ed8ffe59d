"""
Jobs for our own threads whose results go straight to the event loop.

The usual way of ``run_in_executor`` has two futures that watch each other, and wakes the event loop up for each result.
Here is one future, and one wake-up for all results that are there by then.
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
        """Call the function in a thread. The future is already of the event loop, which then takes it as it is."""
        fn = functools.partial(fn, *args, **kwargs) if args or kwargs else fn
        job = ThreadJob(fn, self._loop.create_future(), self.send)
        self._threads.start(job)
        return job.future

    def send(self, job: ThreadJob) -> None:
        """Have the job settled in the event loop; for the threads."""
        self._finished.append(job)
        if not self._is_announced:  # if two threads see it at once, the second wake-up is for nothing
            self._is_announced = True
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:
                if not self._loop.is_closed():  # otherwise, nobody waits for it anymore
                    raise

    def _settle(self) -> None:
        self._is_announced = False  # first: what is not seen below, is announced again
        while self._finished:
            self._finished.popleft().settle()


class ThreadJob:
    """
    A call of a function in a thread; the future is to be awaited in the event loop, where it can be cancelled.

    When it is over, it is sent to those who are to settle it in the event loop.
    """

    __slots__ = ("_error", "_fn", "_result", "_send", "future")

    def __init__(self, fn: Callable[[], Any], future: asyncio.Future[Any], send: Callable[[ThreadJob], None]) -> None:
        self._fn = fn
        self._send = send
        self._result: Any = None
        self._error: BaseException | None = None
        self.future = future

    def run(self) -> None:
        """Call the function, unless nobody waits for that anymore; in the thread."""
        if self.future.cancelled():
            return
        try:
            self._result = self._fn()
        except BaseException as e:
            self._error = e
        self._send(self)
        del self  # the error holds this frame by its traceback: they must not hold each other

    def cancel(self) -> None:
        """There will be no thread for it."""
        self._error = asyncio.CancelledError()
        self._send(self)

    def settle(self) -> None:
        """Pass the result to those who wait for it; in the event loop."""
        settle(self.future, self._result, self._error)


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Pass the result of a function, or its error, to those who still wait for it; in the event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)
