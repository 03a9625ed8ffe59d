"""
An event loop that jumps over the waiting.

Tests of hours-long behaviour (retries, timers, expirations) should take milliseconds, and still use real
sockets and real threads. This loop's clock runs ahead of the real one: when the loop has nothing to do but
to wait for its next timer, it moves the clock to that timer instead of sleeping.

"Nothing to do" means that no callback is ready, no file descriptor is readable or writable -- not even after
a moment given to the kernel to bring the data across the loopback -- and no executor's thread runs a job of
this loop. While such a job runs, the time is the real time: nobody knows when the job ends.

The loop knows only its own work. Data that comes from outside of it (another process, a thread started by
hand) is not foreseen, so keep the client and the server on the same loop: ``async with LocalCluster()``.

Use it as ``@pytest.mark.fastforward`` on an async test; a fixture of such a test runs on the same loop. With external
programs or other threads in the test, use ``@pytest.mark.fastforward("exit")``: the time is the real one, except for
when the operator is stopped, so that only its exit waits for nothing.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import selectors
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVarTuple

_Ts = TypeVarTuple("_Ts")

# How long the kernel may take to carry bytes over the loopback: the price of every jump. It is usually done within the
# send call; if not, because the machine is busy, the kernel needs the processor, which is given up by sleeping at all.
LOOPBACK_GRACE = 0.0001
# The same on a busy machine, where even the sleep takes longer than that.
BUSY_GRACE = 0.002


class FastForwardLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when there is nothing else to wait for."""

    def __init__(self, *, is_fast: bool = True) -> None:
        self.is_fast = is_fast
        """Whether it jumps now; until then, it is a regular loop."""
        self._ahead = 0.0  # by how many seconds our time is ahead of the monotonic clock
        self._jobs: set[_Job] = set()
        self._is_ending = False
        super().__init__(_FastForwardSelector(self))

    def time(self) -> float:
        return time.monotonic() + self._ahead

    def skip(self, seconds: float) -> None:
        """Move the clock forward; the timers that are due by then run as if the time has passed."""
        self._ahead += seconds

    def is_working(self) -> bool:
        """Whether some thread runs a job of this loop, or has just ended it and the result is underway."""
        self._jobs = {job for job in self._jobs if not job.is_over()}
        return bool(self._jobs) or self._is_ending

    def run_in_executor(
            self,
            executor: concurrent.futures.Executor | None,
            func: Callable[[*_Ts], Any],
            *args: *_Ts,
    ) -> asyncio.Future[Any]:
        job = _Job(lambda: func(*args))
        job.future = super().run_in_executor(executor, job)
        self._jobs.add(job)
        return job.future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        # A thread of its own waits for the threads, and minutes of our time must not pass meanwhile.
        self._is_ending = True
        await super().shutdown_default_executor(*args, **kwargs)
        self._is_ending = False


@contextlib.contextmanager
def fast_forwarding() -> Iterator[None]:
    """Let the current event loop jump, if it is able to."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, FastForwardLoop):
        yield
        return
    before, loop.is_fast = loop.is_fast, True
    try:
        yield
    finally:
        loop.is_fast = before


class _Job:
    """
    A function in an executor: over when both its thread has left it and its outcome has arrived.

    The thread may outlive a cancelled future; and the outcome arrives slightly later than the thread ends.
    """
    future: asyncio.Future[Any]

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn
        self.started = False
        self.ended = False

    def __call__(self) -> Any:
        self.started = True
        try:
            return self.fn()
        finally:
            self.ended = True

    def is_over(self) -> bool:
        return self.future.done() and (self.ended or not self.started)


class _FastForwardSelector(selectors.DefaultSelector):
    """A selector that skips the time instead of sleeping."""

    def __init__(self, loop: FastForwardLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or not self._loop.is_fast or self._loop.is_working():
            return self._select(timeout)

        # The loop's own wake-up pipe is always there; with nothing else, there is nothing to come.
        since = time.monotonic()
        events = self._select(0)
        if not events and len(self.get_map()) > 1:
            time.sleep(min(timeout, LOOPBACK_GRACE))
            if time.monotonic() - since > 5 * LOOPBACK_GRACE:
                time.sleep(BUSY_GRACE)
            events = self._select(0)
        if not events:
            self._loop.skip(max(0.0, timeout - (time.monotonic() - since)))
        return events

    def _select(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return events
