"""
Fast-forwarding: tests of hours-long behaviour take milliseconds, and still use real sockets and real threads.

They run in the virtual time that simulations have, with nothing else of these. The loop knows only its own work. Data
that comes from outside of it (another process, a thread started by hand) is not foreseen, so keep the client and the
server on the same loop: ``async with LocalCluster()``.

Use it as ``@pytest.mark.fastforward`` on an async test; a fixture of such a test runs on the same loop. With external
programs or other threads in the test, use ``@pytest.mark.fastforward("exit")``: the time is the real one, except for
when the operator is stopped, so that only its exit waits for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from kopf._virtual_time.virtual_time_loop import VirtualTimeLoop

PATIENCE = 0.2
"""For how long the loop waits for a thread that works, until all else goes on besides; the clock does not, still."""


def make_loop(*, is_fast: bool) -> VirtualTimeLoop:
    """Make an event loop that jumps over the waiting; or is able to, but is a regular loop until then."""
    loop = VirtualTimeLoop(patience=PATIENCE)
    loop.be_virtual(is_fast)
    return loop


def is_fast() -> bool:
    """Whether the current event loop jumps."""
    loop = asyncio.get_running_loop()
    return isinstance(loop, VirtualTimeLoop) and loop.is_virtual


@contextlib.contextmanager
def fast_forwarding() -> Iterator[None]:
    """Let the current event loop jump, if it is able to."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop) or loop.is_virtual:
        yield
        return
    loop.be_virtual(True)
    try:
        yield
    finally:
        loop.be_virtual(False)
