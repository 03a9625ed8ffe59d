"""
Memory: what is freed in the process of the operator is given back to the system.

The C library of most Linux systems (glibc) takes big blocks from the system one by one, and gives them back when they
are freed; but once one is freed, it takes all others of that size from its heap, which ends up full of holes. The TLS
buffer of a connection is 256 KiB, and there are up to 50 connections at once: the heap grows for hours by what was
needed only for moments. With the threshold set explicitly, it stays as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_MMAP_THRESHOLD = -3
"""As in ``malloc.h``."""

_THRESHOLD = 128 * 1024
"""Which blocks are big, in bytes: the initial value of glibc."""


def give_back_freed_memory() -> None:
    """Keep the threshold of big blocks as it is at the start; unless the user has decided on it, or it is not glibc."""
    is_decided = "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform == "linux" and not is_decided:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _THRESHOLD)
