"""Ctrl+C and SIGTERM as the normal ways to end those commands that run until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def interruptible() -> Iterator[list[signal.Signals]]:
    """
    Let SIGINT & SIGTERM cancel the current task inside of the block, and quietly leave the block.

    Every signal cancels: the second one interrupts the cleanup that the first one has caused. Those received
    are in the list.
    """
    received: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def handle(signum: signal.Signals) -> None:
        received.append(signum)
        task.cancel()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, handle, signum)
    try:
        yield received
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)
