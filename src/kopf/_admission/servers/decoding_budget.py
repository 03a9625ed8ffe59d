"""
The budget for what reviews take when they are decoded: so much memory at once, and the next ones wait until others end.

There are two lanes: whoever sends large reviews, makes only large reviews wait. And of those, only so many bytes wait:
they have arrived already, and those that are still arriving need memory, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kopf._admission.servers.request_bodies import Refusal

_SMALL_SHARE = 32
"""Which part of the budget a review can take to be a small one: about 2 MiB by default."""


class DecodingBudget:
    """All sizes are in bytes."""

    def __init__(self, max_size: int, *, max_waiting: int, timeout: float) -> None:
        """``max_size`` is of decoded reviews, ``max_waiting`` of encoded ones; ``timeout`` is in seconds."""
        self.max_size = max_size
        """The largest review, and all large ones at once. All small ones at once take a half of that."""
        self._max_waiting = max_waiting
        self._timeout = timeout
        self._large = _Lane(max_size)
        self._small = _Lane(max_size // 2)

    @contextlib.asynccontextmanager
    async def taking(self, size: int, encoded_size: int) -> AsyncIterator[None]:
        """Have so much memory during the block. Raises :class:`Refusal` if it cannot be had."""
        if size > self.max_size:
            raise Refusal(413, f"The review takes more than {self.max_size} bytes when it is decoded.")
        lane = self._small if size <= self.max_size // _SMALL_SHARE else self._large
        if lane is self._large and lane.waiting and lane.waiting + encoded_size > self._max_waiting:
            raise _make_refusal()
        try:
            async with asyncio.timeout(self._timeout):
                await lane.take(size, encoded_size)
        except TimeoutError:
            raise _make_refusal() from None
        try:
            yield
        finally:
            lane.give_back(size)


class _Lane:
    """Those who share some memory; they come in their order."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self.waiting = 0
        """The encoded sizes of those who wait."""

    async def take(self, size: int, encoded_size: int) -> None:
        self.waiting += encoded_size
        try:
            async with self._turn:
                while size > self._free:
                    self._room.clear()
                    await self._room.wait()
                self._free -= size
        finally:
            self.waiting -= encoded_size

    def give_back(self, size: int) -> None:
        self._free += size
        self._room.set()


def _make_refusal() -> Refusal:
    return Refusal(503, "There are too many large requests at once.", {"Retry-After": "1"})
