"""
Single events told in another way: later, again, or as if something else had happened.
"""
from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from kopf_cluster.requests import Call, Request

Reteller: TypeAlias = Callable[[Call, Request, bytes], AsyncGenerator[bytes, None] | None]
"""A function that looks at an event in JSON that is about to be sent to whoever has requested the stream.

It gives what is sent instead, each piece when it is time, or nothing to send the event as it is. What follows in the
same stream, waits for that: streams keep their order.
"""


async def retell(
        retellers: Sequence[Reteller], call: Call, request: Request, piece: bytes,
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
