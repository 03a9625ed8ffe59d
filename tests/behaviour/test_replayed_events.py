"""Events that come once more, in their latest or in an old state: a proxy on the way, or a server, can repeat them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import kopf
from tests.behaviour.objects import Objects, get_patience
from tests.behaviour.running import Calls, Operator


class Repeater:
    """Repeats all that was told of the objects so far, after each event of the kind."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def __call__(self, call: Any, request: Any, event: bytes) -> AsyncGenerator[bytes, None] | None:
        decoded = json.loads(event)
        return self._repeat(event) if decoded["object"].get("kind") == "KopfExample" else None

    async def _repeat(self, event: bytes) -> AsyncGenerator[bytes, None]:
        self.told.append(event)
        yield event
        for old in list(self.told):
            yield old


async def test_replayed_events_change_nothing(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(name: str, reason: str, **_: Any) -> None:
        calls.append((reason, name))

    @kopf.on.event("kopfexamples")
    async def event_fn(name: str, type: str, **_: Any) -> None:
        if type == "DELETED":
            calls.append((type, name))

    async def wait(what: str, name: str) -> None:
        await calls.wait(lambda items: (what, name) in items)

    repeater = Repeater()
    operator.cluster.faults.retellers.append(repeater)
    await operator.launch()
    for name in ("one", "two"):
        async with asyncio.timeout(get_patience()):
            await kex.create(name)
            await wait("create", name)
            await kex.merge({"spec": {"field": "other"}}, name)
            await wait("update", name)
            await kex.delete(name)
            await wait("DELETED", name)
    assert list(calls) == [
        (what, name) for name in ("one", "two") for what in ("create", "update", "delete", "DELETED")
    ]
    assert len(repeater.told) >= 10
    await operator.stop()
