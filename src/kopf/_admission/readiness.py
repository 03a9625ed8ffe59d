"""
Readiness of the admission: when it is known enough to answer the reviews.

It must be known which resources there are, and the indices must be filled: an answer that is based on a half of the
knowledge would be wrong. While the operator is paused, the indices are not filled, nobody knows for how long, and the
reviews are answered with what there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kopf._controller.runtime import Runtime


class AdmissionReadiness:
    """Lets the reviews wait, at the start of the operator and after its pauses."""

    def __init__(self, runtime: Runtime, settle_peering: Callable[[], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._settle_peering = settle_peering
        self._waiting: set[asyncio.Event] = set()
        self._discovered = asyncio.Event()
        runtime.pause.subscribe(self._accept_pause)

    def note_discovery(self) -> None:
        """It is known which resources there are."""
        self._discovered.set()

    async def wait(self) -> None:
        """Wait until all that is needed to answer is known."""
        await self._discovered.wait()
        if not self._runtime.index_readiness.is_open:
            await self._settle_peering()  # at the start, it is on hold anyway, until it is known if it is paused
        while not (self._runtime.index_readiness.is_open or self._runtime.pause.is_on):
            changed = asyncio.Event()
            self._runtime.index_readiness.call_when_open(changed.set)
            self._waiting.add(changed)
            try:
                await changed.wait()
            finally:
                self._waiting.discard(changed)

    def _accept_pause(self) -> None:
        for changed in self._waiting:
            changed.set()
