"""
Signals of the operating system: the first one stops the operator gracefully, the second one ends the process.

The process also ends if the operator does not exit for long, e.g. because of a cleanup handler.

If the application handles the signals by itself (as web servers do), they are left to it: it has its own order of exit,
and can stop the operator. Ignored signals count as unhandled: shells start background commands of scripts with SIGINT
ignored, but a user who sends it to the operator wants it to stop.
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
"""By the convention of POSIX shells, the exit code of a process ended by a signal is 128 plus the signal."""


@contextlib.contextmanager
def stopping_by_signals(stopped: asyncio.Event, settings: ProcessSettings) -> Iterator[None]:
    """Set the event at the first signal, but only in the main thread, and only for signals without other handlers."""
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
    """Tell if the handler is a default one of the system, of Python, or of its event loops."""
    if isinstance(handler, functools.partial) and isinstance(getattr(handler.func, "__self__", None), asyncio.Runner):
        return True  # it only cancels the main task at Ctrl+C
    return handler in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


def _end_process(timeout: float, signum: signal.Signals) -> None:
    """End the process; in a thread, as the event loop can be blocked. The stacks show the reason of the delay."""
    logger.critical("The operator has not exited in %g seconds since the signal. The process ends by force.", timeout)
    faulthandler.dump_traceback(all_threads=True)
    logging.shutdown()
    os._exit(_EXIT_CODE_BASE + signum)
