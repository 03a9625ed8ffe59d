"""
What the process of an operator consists of, for whoever looks for a leak: live objects, heaps, tasks, threads, files.

Enabled by ``--census``. When the process gets the signal, it appends a line of JSON to the file. That it collects the
garbage first, is the price: what is counted then, is really referred to.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import gc
import json
import os
import pathlib
import resource
import signal
import sys
import threading
import time
from typing import Any

SIGNAL = signal.SIGUSR1
_MAX_TYPES = 400


class _MallocInfo(ctypes.Structure):
    """As in ``malloc.h`` of glibc; in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def take_censuses(path: pathlib.Path) -> None:
    """Take one in the running event loop whenever the signal comes."""
    asyncio.get_running_loop().add_signal_handler(SIGNAL, _take, path)


def _take(path: pathlib.Path) -> None:
    before = {"rss": _read_rss(), "objects": len(gc.get_objects())}
    garbage = gc.collect()
    types = collections.Counter(f"{type(obj).__module__}.{type(obj).__qualname__}" for obj in gc.get_objects())
    census: dict[str, Any] = {
        "time": time.monotonic(),
        "before": before,
        "garbage": garbage,
        "rss": _read_rss(),
        "objects": types.total(),
        "blocks": sys.getallocatedblocks(),
        "python_heap": _read_python_heap(),
        "malloc": _read_malloc(),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "files": len(os.listdir("/dev/fd")),
        "types": dict(types.most_common(_MAX_TYPES)),
    }
    with path.open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **census}) + "\n")


def _read_rss() -> float:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _read_malloc() -> dict[str, float]:
    """How much the C library has: on its heap, in maps, used, free; in MiB."""
    read = ctypes.CDLL(None).mallinfo2
    read.restype = _MallocInfo
    info = read()
    return {name: getattr(info, name) / 2**20 for name in ("arena", "hblkhd", "uordblks", "fordblks", "keepcost")}


def _read_python_heap() -> dict[str, float]:
    """How much Python has for small objects, in MiB: of its own statistics, which it only prints."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    stderr = os.dup(2)
    try:
        os.dup2(writer, 2)
        sys._debugmallocstats()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(writer)
    with open(reader) as file:
        values = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in file)}
    used = int(values["# bytes in allocated blocks"].replace(",", ""))
    return {"arenas": float(values["# arenas allocated current"]), "used": used / 2**20}
