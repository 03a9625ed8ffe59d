"""
Waiting for an object to be as wanted: it is looked at once, and then watched from there, so that no state is missed.
"""
from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from kopf_cluster import codec
from kopf_cluster.clients import operations
from kopf_cluster.clients.conditions import Condition
from kopf_cluster.clients.door import Door
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.requests import Stream, User

# How much of the last state is shown when the time is over, in characters.
_SHOWN: Final = 4000


async def wait(
        door: Door, user: User, place: tuple[str, str, str], condition: Condition, timeout: float,
) -> Obj:
    """Give the state that meets the condition, or the last one before the absence that meets it.

    The place is the kind, the name, and the namespace. It is to be called in the event loop of the cluster.
    """
    seen = _Seen()
    try:
        async with asyncio.timeout(timeout):
            while not await _look_and_watch(door, user, place, condition, seen):
                pass  # the history is forgotten, or the server is another one, so it begins anew
    except TimeoutError:
        raise TimeoutError(_explain(place, timeout, seen)) from None
    return seen.last


class _Seen:
    """What is known of the object."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Obj = {}
        self.exists = False

    def notice(self, obj: Obj | None) -> Obj | None:
        self.exists = obj is not None
        if obj is not None:
            self.last = obj
        return obj


async def _look_and_watch(
        door: Door, user: User, place: tuple[str, str, str], condition: Condition, seen: _Seen,
) -> bool:
    """Tell whether the condition is met before the stream ends."""
    look = await door.do(user, operations.look(*place))
    if condition(seen.notice(look.obj)):
        return True
    stream: Stream = await door.do(user, operations.watch(*place, look.version))
    async with contextlib.aclosing(stream.chunks()) as chunks:
        async for chunk in chunks:
            for line in chunk.splitlines():
                event = codec.decode(line)
                if event["type"] == "ERROR":
                    return False
                if condition(seen.notice(None if event["type"] == "DELETED" else event["object"])):
                    return True
    return False


def _explain(place: tuple[str, str, str], timeout: float, seen: _Seen) -> str:
    kind, name, namespace = place
    what = f"{kind} {name!r} in the namespace {namespace!r}"
    if not seen.exists:
        return f"{what} is not there after {timeout} seconds"
    state = {**seen.last, "metadata": {**seen.last["metadata"], "managedFields": None}}
    text = codec.encode(state).decode()
    return f"{what} is not as wanted after {timeout} seconds, but: {text[:_SHOWN]}{'...' * (len(text) > _SHOWN)}"
