"""
Memory: what is not needed is not loaded, and what is freed is given back to the system.

The C library of most Linux systems (glibc) takes big blocks from the system one by one, and gives them back when they
are freed; but once one is freed, it takes all others of that size from its heap, which ends up full of holes. The TLS
buffer of a connection is 256 KiB, and there are up to 50 connections at once: the heap grows for hours by what was
needed only for moments. With the threshold set explicitly, it stays as it is.

Nor does it give back the holes between the small blocks that are in use: after every burst of work (a reconnection with
hundreds of objects to look at), something small stays at the end of the heap. So it is told to, now and then.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_M_MMAP_THRESHOLD = -3
"""As in ``malloc.h``."""

_THRESHOLD = 128 * 1024
"""Which blocks are big, in bytes: the initial value of glibc."""

_TRIM_INTERVAL = 60.0
"""How often to give the holes back, at most, in seconds; it takes milliseconds."""

_TRIM_WORK = 1.0
"""For how much work in between, in seconds of CPU: those who idle have nothing new to give back."""

_LIBRARY = "aiohttp"

_PURE_LISTS = "FROZENLIST_NO_EXTENSIONS"
"""The variable by which ``frozenlist`` is told to be in pure Python."""


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


def spare_when_imported() -> None:
    """
    Let the HTTP library ``aiohttp`` be imported in a sparing way, whoever imports it, and whenever.

    Operators import it late, if at all: when they serve something, or when they go through a proxy.
    """
    is_spared = any(isinstance(finder, SparingFinder) for finder in sys.meta_path)
    if not is_spared and _LIBRARY not in sys.modules:
        sys.meta_path.insert(0, SparingFinder())


class SparingFinder:
    """Finds the library where the others find it, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _LIBRARY:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_sparingly(module: ModuleType) -> None:
                with _sparing_cpp_library(), _sparing_authorities():
                    load(module)

            spec.loader.exec_module = load_sparingly  # type: ignore[method-assign]  # of this one loader
        return spec


@contextlib.contextmanager
def _sparing_cpp_library() -> Iterator[None]:
    """
    Import the HTTP library without the run-time library of C++, which is 1 MiB.

    Of all that is imported, only ``frozenlist`` is written in C++: the lists of callbacks in ``aiohttp``, which are
    nearly always empty, and are as good in pure Python. If the user has set the variable, even to nothing, it remains;
    otherwise, it is not there afterwards, so that no other program that is started by the operator gets it.
    """
    if _PURE_LISTS in os.environ:
        yield
        return
    os.environ[_PURE_LISTS] = "1"
    try:
        yield
    finally:
        del os.environ[_PURE_LISTS]


@contextlib.contextmanager
def _sparing_authorities() -> Iterator[None]:
    """
    Import the HTTP library with no certificate authorities for the connections that are not verified: 0.9 MiB.

    It makes two TLS contexts for all of its sessions when it is imported, and fills both with the authorities of the
    system. One of them verifies no certificates (``ssl=False``), so it never looks at them.
    """
    import ssl

    load = ssl.SSLContext.set_default_verify_paths

    def load_if_needed(self: ssl.SSLContext) -> None:
        if self.verify_mode is not ssl.CERT_NONE:
            load(self)

    ssl.SSLContext.set_default_verify_paths = load_if_needed  # type: ignore[method-assign]  # for a moment
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = load  # type: ignore[method-assign]
