"""
Memory: freed memory goes back to the system; garbage is collected rarely.

The C library of most Linux systems (glibc) takes big blocks from the system one by one, and gives them back when they
are freed. But after the first one is freed, it takes other blocks of that size from its heap, which gets full of holes.
The TLS buffer of a connection is 256 KiB, and there are up to 50 connections at once: the heap would grow for hours
by memory that was needed only for moments. An explicit threshold prevents that.

It does not give back the holes between small blocks in use either: after each burst of work (e.g. a reconnection with
hundreds of objects), a small block stays at the end of the heap. So the heap is trimmed now and then.

By default, Python looks for cyclic garbage after every few hundred new objects, and sometimes in all objects. A busy
operator makes so many objects for a dozen handled ones, with hardly any cycles; and nearly all objects (modules,
classes, functions) stay until the end. This took 8 % of the CPU of a busy operator.
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
"""The number of the option in ``malloc.h``."""

_THRESHOLD = 128 * 1024
"""The size of big blocks, in bytes: the initial value of glibc."""

_TRIM_INTERVAL = 60.0
"""How often the heap is trimmed at most, in seconds; it takes milliseconds."""

_TRIM_WORK = 1.0
"""After how much work the heap is trimmed, in seconds of CPU: idle operators have nothing new to give back."""

_DEFAULTS = gc.get_threshold()
"""The thresholds before any code of users is loaded."""

_NEW_OBJECTS = 10_000
"""After how many new containers Python looks for garbage among them: 1-2 MiB."""

_LOOKS = 2
"""
After how many such looks Python also looks at the next older generation; the default is 10.

Objects that live for minutes and end in cycles (a daemon of users, a connection) are freed only by a look at all
generations. With the default, it would come after a million new containers: hours, or hundreds of MiB. It does not come
too often, as Python waits until a quarter of all objects is new.
"""


def give_back_freed_memory() -> None:
    """Keep the initial threshold of big blocks; unless the user has set it, or the C library is not glibc."""
    is_decided = "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get("GLIBC_TUNABLES", "")
    if not is_decided and _has_glibc():
        import ctypes  # 0.4 MiB, which are only for this

        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)


def trim_heap_regularly(loop: asyncio.AbstractEventLoop) -> None:
    """Trim the heap regularly while the event loop runs, if the C library is glibc."""
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
    """Tell if the C library is glibc, by a name that only glibc knows: musl of Alpine does not need this."""
    try:
        return sys.platform == "linux" and bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


def collect_rarely() -> None:
    """Collect garbage among new objects only, and less often; unless the user has changed the collection."""
    if gc.isenabled() and gc.get_threshold() == _DEFAULTS and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, _LOOKS, _LOOKS)


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Collect no garbage inside of the block, for a moment with hardly any garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Do the same inside of the block, as in a test that begins hundreds of operators."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
