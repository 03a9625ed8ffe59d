"""Patience: for how long the tests wait for what has to happen. It is for what hangs: busy machines are slow."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Callable

PATIENCE = 120.0
"""In seconds; less than the time for a whole test, so that it is said what was waited for."""

LONG_PATIENCE = 5 * PATIENCE
"""The same for programs that take many seconds even on quick machines: whole runs of tests, and type checkers."""


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until it is true, and look at it often."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def get_starvation(process: int | None = None) -> float:
    """
    For how long the threads of the process were ready to run, but have waited for a processor, in seconds since their
    start; by default, it is the current thread only.
    """
    files = pathlib.Path("/proc").glob("thread-self/schedstat" if process is None else f"{process}/task/*/schedstat")
    nanoseconds = 0
    for file in files:
        with contextlib.suppress(OSError):  # the thread has ended
            nanoseconds += int(file.read_text().split()[1])
    return nanoseconds / 1e9


def get_slowness() -> float:
    """How many times slower this processor computes now than the one of docs/performance.md; at least 1."""
    started = time.thread_time()
    for number in range(20_000):
        {"number": number, "parts": (number, str(number))}
    return max(1.0, (time.thread_time() - started) / _USUAL_TIME)


_USUAL_TIME = 0.003
"""What the loop above takes there, in seconds."""
