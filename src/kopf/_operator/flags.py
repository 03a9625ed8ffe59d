"""Flags of embedding applications, of all usual kinds: to stop the operator, and to wait until it is ready."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

Flag = asyncio.Future[Any] | asyncio.Event | concurrent.futures.Future[Any] | threading.Event

_POLLING_INTERVAL = 0.05
"""How often to check flags of other threads, in seconds: waiting for them would block a whole thread."""


async def wait_flag(flag: Flag) -> None:
    """
    Wait until the flag is raised; for futures, with any outcome.

    After a cancellation, the flag is as before: flags of threads can outlive the event loop.

    Raises :class:`RuntimeError` or :class:`ValueError` if the flag belongs to another event loop.
    """
    match flag:
        case asyncio.Event():
            await flag.wait()
        case threading.Event() | concurrent.futures.Future():
            is_raised = flag.is_set if isinstance(flag, threading.Event) else flag.done
            while not is_raised():  # noqa: ASYNC110  # it is not a flag of asyncio
                await asyncio.sleep(_POLLING_INTERVAL)
        case _:
            if flag.get_loop() is not asyncio.get_running_loop():
                raise ValueError(
                    "The stop flag belongs to another event loop than that of the operator. Make it in the same one, "
                    "or use threading.Event() or concurrent.futures.Future()."
                )
            await asyncio.wait([flag])


def raise_flag(flag: Flag) -> None:
    """Raise the flag, if it is not raised yet."""
    match flag:
        case asyncio.Event() | threading.Event():
            flag.set()
        case _ if not flag.done():
            flag.set_result(None)


def release_flag(flag: Flag, error: BaseException | None) -> None:
    """
    Release the waiters of the flag, if it is not raised yet: it will not be raised anymore.

    A future gets the error, or is cancelled if there is none. An event cannot have an error, so it is just raised.
    """
    match flag:
        case asyncio.Event() | threading.Event():
            flag.set()
        case _ if not flag.done():
            if isinstance(error, Exception):
                flag.set_exception(error)
                flag.exception()  # mark it as retrieved: the operator raises it anyway, even if nobody waits
            else:
                flag.cancel()
