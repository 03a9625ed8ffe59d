"""The event loop of an operator: the fast one if it is installed, with no noise about connections that are over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def find_loop_factory() -> LoopFactory | None:
    """Use the fast event loop if it is installed; otherwise, the one of Python."""
    try:
        import uvloop  # optional, see the extras
    except ModuleNotFoundError:
        return None

    def make_loop() -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(handle_loop_error)
        return loop

    return make_loop


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """
    Handle what nobody awaits for, as :meth:`asyncio.loop.default_exception_handler` does.

    When the server breaks a connection in the middle of its TLS goodbye, uvloop writes to what it has closed itself,
    and calls this a fatal error. Whoever uses the connection is told anyway, so it is worth a debug message.
    """
    error, transport = context.get("exception"), context.get("transport")
    # Not all ways of closing are noticed by `is_closing()` there: what is closed by an error is only shown as such.
    is_over = transport is not None and (transport.is_closing() or "closed=True" in repr(transport))
    if is_over and isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        logger.debug("A connection was broken while it was being closed: %s", error)
    else:
        loop.default_exception_handler(context)
