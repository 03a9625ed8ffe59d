"""
Late events: in a real cluster, a write is seen by watchers some time after it is answered, and by each at its own time.

Streams are delayed independently. In a stream, everything keeps its order: bookmarks never overtake the events
that they cover, nor does the end of the stream.
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
    """By how many seconds events are late: anything in the range, drawn for each piece of a stream."""

    least: float
    most: float
    clients: Clients = EVERYBODY
    """Whose streams are late."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most < float("inf"):
            raise ValueError(
                f"the lag of watches must be from 0 seconds to no less than that, not from {self.least} to {self.most}"
            )


class Delay:
    """Writes the pieces of one stream a while later. There is no task while there is no lag."""

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
        """Take the piece to be written in its time, or tell that it is to be written at once by the caller."""
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
        """Wait until all that is held, is written in its time."""
        if self._sender is not None:
            await self._sender

    def reconsider(self) -> None:
        """Write what is held at once if there is no lag anymore."""
        if self._get_lag() is None:
            self._held = collections.deque((0.0, piece) for _, piece in self._held)
            self._last = 0.0
            self._hurry.set()

    async def close(self) -> None:
        """Forget what is held."""
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
            self._held.clear()  # the client has gone, and who reads the stream for it, is told so, too
        finally:
            self._sender = None


# Single events told in another way: later, again, or as if something else had happened.

Reteller: TypeAlias = Callable[[Call, Request, bytes], AsyncGenerator[bytes, None] | None]
"""A function that looks at an event in JSON that is about to be sent to whoever has requested the stream.

It gives what is sent instead, each piece when it is time, or nothing to send the event as it is. What follows in the
same stream, waits for that: streams keep their order.
"""


async def retell(
    retellers: Sequence[Reteller],
    call: Call,
    request: Request,
    piece: bytes,
) -> AsyncGenerator[bytes, None]:
    """Give the pieces to be sent instead of this one, which consists of whole lines."""
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
