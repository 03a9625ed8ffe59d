"""Flags of embedding applications: to stop the operator, and to know that it is ready; of all usual kinds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

Flag = asyncio.Future[Any] | asyncio.Event | concurrent.futures.Future[Any] | threading.Event

_POLLING_INTERVAL = 0.05
"""Flags of other threads are checked that often (seconds): waiting for them would block a whole thread."""


async def wait_flag(flag: Flag) -> Any:
    """Wait until the flag is raised; get the value of it if it has one."""
    match flag:
        case asyncio.Event():
            return await flag.wait()
        case threading.Event():
            while not flag.is_set():  # noqa: ASYNC110  # it is not an event of asyncio
                await asyncio.sleep(_POLLING_INTERVAL)
            return True
        case concurrent.futures.Future():
            return await asyncio.shield(asyncio.wrap_future(flag))
        case _:
            return await asyncio.shield(flag)


def raise_flag(flag: Flag) -> None:
    """Raise the flag, if it is not raised yet."""
    match flag:
        case asyncio.Event() | threading.Event():
            flag.set()
        case _ if not flag.done():
            flag.set_result(None)
