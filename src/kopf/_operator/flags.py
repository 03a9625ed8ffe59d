"""Flags of embedding applications: to stop the operator, and to know that it is ready; of all usual kinds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

Flag = asyncio.Future[Any] | asyncio.Event | concurrent.futures.Future[Any] | threading.Event

_POLLING_INTERVAL = 0.05
"""Flags of other threads are checked that often (seconds): waiting for them would block a whole thread."""


async def wait_flag(flag: Flag) -> None:
    """
    Wait until the flag is raised; for the futures, whatever the outcome is.

    Nothing is left behind in the flags when it is cancelled: the flags of threads can outlive the event loop.

    Raises :class:`RuntimeError` or :class:`ValueError` if the flag belongs to another event loop.
    """
    match flag:
        case asyncio.Event():
            await flag.wait()
        case threading.Event():
            while not flag.is_set():  # noqa: ASYNC110  # it is not an event of asyncio
                await asyncio.sleep(_POLLING_INTERVAL)
        case concurrent.futures.Future():
            while not flag.done():  # noqa: ASYNC110  # it is not a future of asyncio
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
    Let go those who wait for the flag, if it is not raised yet: there will be nothing to wait for.

    Futures get the error; or are cancelled if there is none. Events have no place for that, so they are just raised.
    """
    match flag:
        case asyncio.Event() | threading.Event():
            flag.set()
        case _ if not flag.done():
            if isinstance(error, Exception):
                flag.set_exception(error)
                flag.exception()  # it is raised by the operator anyway, so it is not lost if nobody waits
            else:
                flag.cancel()
