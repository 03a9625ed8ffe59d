"""
Signals of the operating system: the first one stops the operator gracefully, the second one ends the process.

So does the time: if the operator does not exit for long (e.g. because of a cleanup handler), the process is ended, too.

If an application handles the signals by itself (as web servers do), they are left to it: it has its own order of
ending, and knows how to stop the operator. Signals that are ignored are nobody's: shells start background commands of
scripts with an ignored SIGINT, and those who send it to the operator nevertheless want it to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from kopf._settings.settings import ProcessSettings

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_BASE = 128
"""By the convention of POSIX shells, a process ended by a signal has the exit code of 128 plus the signal."""


@contextlib.contextmanager
def stopping_by_signals(stopped: asyncio.Event, settings: ProcessSettings) -> Iterator[None]:
    """Set the event by the first signal. Not in other threads than the main one, nor for signals handled already."""
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
        if settings.ultimate_exiting_timeout is not None:
            last_resort = threading.Timer(
                settings.ultimate_exiting_timeout, _end_process, [settings.ultimate_exiting_timeout, signum]
            )
            last_resort.name = "kopf-exit"
            last_resort.daemon = True
            last_resort.start()
            timers.append(last_resort)

    timers: list[threading.Timer] = []
    loop = asyncio.get_running_loop()
    handlers = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    previous = {signum: handler for signum, handler in handlers.items() if _is_default(handler)}
    for signum in previous:
        loop.add_signal_handler(signum, handle, signum)
    try:
        yield
    finally:
        for signum, handler in previous.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, handler)
        for timer in timers:
            timer.cancel()


def _is_default(handler: Any) -> bool:
    """Tell if it is what Python or its event loops do if nobody has asked for anything else."""
    if isinstance(handler, functools.partial) and isinstance(getattr(handler.func, "__self__", None), asyncio.Runner):
        return True  # it is only for Ctrl+C to cancel the main task
    return handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


def _end_process(timeout: float, signum: signal.Signals) -> None:
    """It is in a thread, as the event loop can be blocked. The stacks say what has held the exit."""
    logger.critical("The operator has not exited in %g seconds since it was asked to. The process is ended.", timeout)
    faulthandler.dump_traceback(all_threads=True)
    logging.shutdown()
    os._exit(_EXIT_CODE_BASE + signum)
