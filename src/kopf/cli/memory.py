"""
Memory: what is freed is given back to the system; garbage is looked for as rarely as it pays.

The C library of most Linux systems (glibc) takes big blocks from the system one by one, and gives them back when they
are freed; but once one is freed, it takes all others of that size from its heap, which ends up full of holes. The TLS
buffer of a connection is 256 KiB, and there are up to 50 connections at once: the heap grows for hours by what was
needed only for moments. With the threshold set explicitly, it stays as it is.

Nor does it give back the holes between the small blocks that are in use: after every burst of work (a reconnection with
hundreds of objects to look at), something small stays at the end of the heap. So it is told to, now and then.

By default, Python looks for cyclic garbage for every few hundred new objects, and from time to time goes through
everything there is. A busy operator makes that many for a dozen handled objects, with hardly any cycles among them; and
nearly everything there is (modules, classes, functions) stays until the end. It took 8 % of the CPU of a busy operator.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_M_MMAP_THRESHOLD = -3
"""As in ``malloc.h``."""

_THRESHOLD = 128 * 1024
"""Which blocks are big, in bytes: the initial value of glibc."""

_TRIM_INTERVAL = 60.0
"""How often to give the holes back, at most, in seconds; it takes milliseconds."""

_TRIM_WORK = 1.0
"""For how much work in between, in seconds of CPU: those who idle have nothing new to give back."""

_DEFAULTS = gc.get_threshold()
"""As they are before any code of users is loaded."""

_NEW_OBJECTS = 10_000
"""How many new containers there are until it is looked if any of them are garbage: 1-2 MiB of them."""

_LOOKS = 2
"""
After how many of such looks those are looked at, too, that have outlived one, and so on; by default, it is 10.

What lives for minutes and is in cycles only then (a daemon in the code of users, a connection) is freed only by a look
at everything. With the defaults it would come after a million new containers: hours, or hundreds of MiB. It does not
come too often: Python waits until a quarter of all is new.
"""


def give_back_freed_memory() -> None:
    """Keep the threshold of big blocks as it is at the start; unless the user has decided on it, or it is not glibc."""
    is_decided = "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get("GLIBC_TUNABLES", "")
    if not is_decided and _has_glibc():
        import ctypes  # 0.4 MiB, which are only for this

        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def trim_heap_regularly(loop: asyncio.AbstractEventLoop) -> None:
    """Give the holes of the heap back for as long as the event loop runs; unless it is not glibc."""
    if _has_glibc():
        loop.call_later(_TRIM_INTERVAL, _trim_if_worked, loop, time.process_time())


def _trim_if_worked(loop: asyncio.AbstractEventLoop, trimmed_at: float) -> None:
    now = time.process_time()
    if now - trimmed_at >= _TRIM_WORK:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
        trimmed_at = now
    loop.call_later(_TRIM_INTERVAL, _trim_if_worked, loop, trimmed_at)


def _has_glibc() -> bool:
    """Tell it by the name that only glibc knows: Alpine's musl has no ``mallopt`` and needs none."""
    try:
        return sys.platform == "linux" and bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


def collect_rarely() -> None:
    """Look only at what is new from now on, and less often; unless the user has decided on how to do it."""
    if gc.isenabled() and gc.get_threshold() == _DEFAULTS and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, _LOOKS, _LOOKS)


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Look for no garbage for a moment in which there is hardly any."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Do the same for as long as the context lasts, as in a test that begins operators by the hundred."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
