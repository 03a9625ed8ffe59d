"""
Late events: in a real cluster, watchers see a write some time after its answer, and each at its own time.

Streams are delayed independently. A stream keeps its order: neither bookmarks nor the end of the stream overtake
events.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from kopf_cluster.faults.clients import EVERYBODY, Clients
from kopf_cluster.requests import Call, Request


class WatchLag(msgspec.Struct, frozen=True):
    """The delay of events, in seconds: a random one in the range for each piece of a stream."""

    least: float
    most: float
    clients: Clients = EVERYBODY
    """The clients of the delayed streams."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most < float("inf"):
            raise ValueError(
                f"the lag of watches must be a range of seconds, not negative, not from {self.least} to {self.most}"
            )


class Delay:
    """Delays the pieces of one stream. There is no task while there is no delay."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        get_lag: Callable[[], WatchLag | None],
        dice: random.Random,
    ) -> None:
        self._write = write
        self._get_lag = get_lag
        self._dice = dice
        self._held: collections.deque[tuple[float, bytes]] = collections.deque()
        self._last = 0.0
        self._sender: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def hold(self, piece: bytes) -> bool:
        """Take the piece to write it later; return false if the caller must write it immediately."""
        lag = self._get_lag()
        if lag is None and self._sender is None:
            return False
        delay = 0.0 if lag is None else self._dice.uniform(lag.least, lag.most)
        self._last = max(self._last, asyncio.get_running_loop().time() + delay)
        self._held.append((self._last, piece))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_held(), name="late events of the local cluster")
        return True

    async def flush(self) -> None:
        """Wait until all held pieces are written in their time."""
        if self._sender is not None:
            await self._sender

    def reconsider(self) -> None:
        """Write the held pieces immediately if there is no delay any more."""
        if self._get_lag() is None:
            self._held = collections.deque((0.0, piece) for _, piece in self._held)
            self._last = 0.0
            self._hurry.set()

    async def close(self) -> None:
        """Drop the held pieces."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _send_held(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._held:
                due, piece = self._held[0]
                if due <= loop.time():
                    await self._write(piece)
                    self._held.popleft()
                    continue
                self._hurry.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._hurry.wait()
        except ConnectionError:
            self._held.clear()  # the client has gone; the reader of the stream notices that, too
        finally:
            self._sender = None


# Replacements of single events: later, repeated, or different ones.

Reteller: TypeAlias = Callable[[Call, Request, bytes], AsyncGenerator[bytes, None] | None]
"""A function that replaces an event in JSON, which is about to be sent for the request.

It yields the pieces to send instead, each in its time, or returns none to send the event unchanged. Later events of the
same stream wait, too: streams keep their order.
"""


async def retell(
    retellers: Sequence[Reteller],
    call: Call,
    request: Request,
    piece: bytes,
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces to send instead of this one, which consists of whole lines."""
    untouched = b""
    for event in piece.splitlines(keepends=True):
        answers = (reteller(call, request, event) for reteller in retellers)
        told = next((answer for answer in answers if answer is not None), None)
        if told is None:
            untouched += event
            continue
        if untouched:
            yield untouched
            untouched = b""
        async with contextlib.aclosing(told):
            async for part in told:
                yield part
    if untouched:
        yield untouched
