"""
Thread pools: the threads for synchronous functions of one operator.

There are three pools: for handlers, with a limited number of threads; for daemons, each of which occupies a thread
while its object exists; and for brief functions, which must not wait for the others. If the settings replace the
executor, it serves as all three.

The results go straight to the event loop. The usual ``run_in_executor`` has two connected futures for each call, and
wakes the event loop up for each result. Here is one future for each call, and one wake-up for all results that are
ready.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from kopf._client.fencing import Fence
from kopf._handlers.thread_usage import ThreadCall, ThreadUsage, TracedCall
from kopf._settings.settings import ExecutionSettings
from kopf._settings.threads import ELASTIC_LIMIT, HandlerThreads

logger = logging.getLogger(__name__)

PATIENCE = 0.05
"""The time until one more thread helps the existing ones with brief functions, in seconds."""


def get_abandoned_call(error: asyncio.CancelledError) -> TracedCall | None:
    """
    Get the abandoned call, which continues in its thread, because threads cannot be cancelled.

    The error itself contains it: until Python 3.13, timeouts do not recognise errors of other classes as their own.
    """
    call = error.args[0] if error.args else None
    return call if isinstance(call, TracedCall) else None


class ThreadPools:
    """
    The threads of one operator. They start on demand, and end on release.

    Large because it has three pools, and their common parts.
    """

    def __init__(self, settings: ExecutionSettings) -> None:
        self._settings = settings
        # The settings can replace it when it has already run something: usually, a startup handler.
        self._own = settings.executor if isinstance(settings.executor, HandlerThreads) else None
        self._long = HandlerThreads(sys.maxsize, name="kopf-daemon")
        self._brief = HandlerThreads(sys.maxsize, name="kopf-index")
        self._brief_calls: BriefCalls | None = None
        self._is_warned = False
        self._loop_threads: dict[HandlerThreads, LoopThreads] = {}
        self.fence: Fence | None = None
        """The fence. It is checked when a thread is free, which can take long."""
        self._calls: WeakKeyDictionary[asyncio.Task[Any], ThreadCall] = WeakKeyDictionary()
        self.usage = ThreadUsage()
        """The calls that occupy the threads now."""

    @property
    def extra_slots(self) -> int:
        """The number of extra objects to handle at once, as their handlers occupy threads, not the event loop."""
        return max(self._settings.max_workers or 0, self.usage.slow_count)

    async def call(self, name: str, fn: Callable[[], Any], *, is_long: bool) -> Any:
        """Call the function in a thread. If ``is_long``, the call must not block the threads of others."""
        executor = self._choose(self._long if is_long else None)
        if self.fence is not None:
            fn = functools.partial(_call_if_open, self.fence, fn)
        # With a copy of the context, so that the thread has the context variables.
        job = functools.partial(contextvars.copy_context().run, fn)
        call = ThreadCall(name, job, executor, self.usage, is_long=is_long)
        if self.fence is not None and (task := asyncio.current_task()) is not None:
            self._calls[task] = call
        try:
            return await asyncio.get_running_loop().run_in_executor(self._adapt(executor), call)
        except asyncio.CancelledError as e:
            if call.is_running:
                raise asyncio.CancelledError(call) from e
            raise
        finally:
            call.release()

    def is_occupied_by(self, task: asyncio.Task[Any]) -> bool:
        """Tell if the task waits for a function in a thread, which survives a cancellation; only with a fence."""
        call = self._calls.get(task)
        return call is not None and call.is_running

    async def call_briefly(self, fn: Callable[[], Any]) -> Any:
        """Call the function in a thread that it shares with others. It should only compute something."""
        if self._brief_calls is None:
            loop = asyncio.get_running_loop()
            self._brief_calls = BriefCalls(loop, lambda: self._adapt(self._choose(self._brief)))
        call = TracedCall(functools.partial(contextvars.copy_context().run, fn))
        try:
            return await self._brief_calls.call(call)
        except asyncio.CancelledError as e:
            if call.is_running:
                raise asyncio.CancelledError(call) from e
            raise

    def _adapt(self, executor: concurrent.futures.Executor) -> concurrent.futures.Executor:
        """Use the short way from Kopf's own threads to the event loop."""
        if not isinstance(executor, HandlerThreads):
            return executor
        if executor not in self._loop_threads:
            self._loop_threads[executor] = LoopThreads(executor, asyncio.get_running_loop())
        return self._loop_threads[executor]

    def _choose(self, own: HandlerThreads | None) -> concurrent.futures.Executor:
        executor = self._settings.executor
        if isinstance(executor, HandlerThreads):
            return executor if own is None else own
        if self._settings.max_workers is not None and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "settings.execution.max_workers has no effect on the replaced settings.execution.executor. "
                "Specify the number of threads when you create the executor."
            )
        return executor

    def release(self) -> None:
        """Let the threads end after their calls, unless the executor belongs to the application."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)
            if self._settings.executor is self._own:  # the next operator can have the same settings
                self._settings.executor = HandlerThreads(self._settings.max_workers)
        self._long.shutdown(wait=False, cancel_futures=True)
        self._brief.shutdown(wait=False, cancel_futures=True)


def _call_if_open(fence: Fence, fn: Callable[[], Any]) -> Any:
    fence.check()
    return fn()


class BriefCalls:
    """
    Functions that usually take microseconds, but must not block the event loop if they take longer.

    A round trip to a thread costs much more than such a function itself. So, all simultaneous calls go to one thread,
    which makes them one by one. If it takes too long, another thread helps with the rest, then one more, and so on: no
    function waits for a function that hangs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, choose: Callable[[], concurrent.futures.Executor]) -> None:
        self._loop = loop
        self._choose = choose
        self._waiting: deque[ThreadJob] = deque()
        self._finished: deque[ThreadJob] = deque()
        self._threads = 0
        self._is_planned = False
        self._timer: asyncio.TimerHandle | None = None

    def call(self, fn: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call the function together with the other simultaneous calls."""
        job = ThreadJob(fn, self._loop.create_future(), self._finished.append)
        self._waiting.append(job)
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._begin)
        return job.future

    def _begin(self) -> None:
        self._is_planned = False
        self._add_thread()
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._check)

    def _add_thread(self) -> None:
        if self._threads >= ELASTIC_LIMIT:
            return
        try:
            thread = self._loop.run_in_executor(self._choose(), self._work)
        except RuntimeError as e:  # the system or the executor has no more threads
            if not self._threads:
                self._fail(e)
            return
        self._threads += 1
        thread.add_done_callback(self._end_thread)

    def _work(self) -> None:
        """Make all waiting calls, in the thread."""
        while self._waiting:
            try:
                job = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            job.run()
            del job  # the thread must not hold the arguments & the results

    def _end_thread(self, thread: asyncio.Future[None]) -> None:
        self._threads -= 1
        self._settle()
        if thread.cancelled():
            self._fail(asyncio.CancelledError())
        elif self._waiting:  # they have come after its last look
            self._add_thread()
        elif self._timer is not None and not self._threads:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Add a thread if calls are still waiting."""
        self._timer = None
        self._settle()
        if self._waiting:
            self._add_thread()
            self._timer = self._loop.call_later(PATIENCE, self._check)

    def _settle(self) -> None:
        while self._finished:
            self._finished.popleft().settle()

    def _fail(self, error: BaseException) -> None:
        while self._waiting:
            settle(self._waiting.popleft().future, None, error)


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
