"""Signals of the operating system: the first one stops the operator gracefully, the second one ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_BASE = 128
"""By the convention of POSIX shells, a process ended by a signal has the exit code of 128 plus the signal."""


@contextlib.contextmanager
def stopping_by_signals(stopped: asyncio.Event) -> Iterator[None]:
    """Set the event by the first signal. In other threads than the main one, the signals are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(signum: signal.Signals) -> None:
        if stopped.is_set():
            logger.warning("Signal %s is received again. The process ends at once.", signum.name)
            logging.shutdown()
            os._exit(_EXIT_CODE_BASE + signum)
        logger.info("Signal %s is received. Operator is stopping.", signum.name)
        stopped.set()

    loop = asyncio.get_running_loop()
    previous = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    for signum in _SIGNALS:
        loop.add_signal_handler(signum, handle, signum)
    try:
        yield
    finally:
        for signum, handler in previous.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, handler)
