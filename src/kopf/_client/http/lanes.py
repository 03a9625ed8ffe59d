"""
Lanes: how many requests of one kind are made at once; the next ones wait for them, those of other kinds do not.

Each request holds a connection, and any number of objects can have to be patched at the same moment: those with timers,
those whose coroutines have waited for the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager, nullcontext

from kopf._settings.settings import QueueingSettings

LANE_WIDTH = 100
"""For so many requests at once: twice as many as there are workers by default, so workers rarely wait."""

_FREE: AbstractAsyncContextManager[None] = nullcontext()


class Lanes:
    """All lanes of one client. They are as wide as the limit of workers, if that is more than usual."""

    def __init__(self, settings: QueueingSettings) -> None:
        self._settings = settings
        self._lanes: dict[Hashable, asyncio.Semaphore] = {}

    def find(self, key: Hashable) -> AbstractAsyncContextManager[None]:
        """Give the context to make a request in; with ``None`` for the key, there is nothing to wait for."""
        if key is None:
            return _FREE
        if key not in self._lanes:
            self._lanes[key] = asyncio.Semaphore(max(LANE_WIDTH, self._settings.worker_limit or 0))
        return self._lanes[key]
