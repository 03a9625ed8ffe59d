"""Listings of many objects: they are looked at meanwhile, so that they are not in memory all at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf._controller import workers
from tests.behaviour.objects import Objects
from tests.behaviour.running import Operator
from tests.patience import PATIENCE


@pytest.fixture
async def many(operator: Operator, kex: Objects, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Many small pages, and few objects that can wait."""
    monkeypatch.setattr(workers, "_FEW", 10)
    monkeypatch.setattr(workers, "_CATCHING_UP", PATIENCE)
    operator.set("watching.chunk_size", 20)
    operator.set("queueing.worker_limit", 1)
    operator.set("peering.standalone", True)  # otherwise, nothing is handled until it is known who the others are
    return await kex.create_all([f"obj{number}" for number in range(200)])


async def test_listed_objects_are_looked_at_before_more_of_them_are_listed(
    operator: Operator,
    many: list[str],
) -> None:
    behind: list[int] = []

    @kopf.on.resume("kopfexamples", when=lambda name, **_: look(name))
    async def fn(**_: Any) -> None:
        pass

    def look(name: str) -> bool:
        looked.add(name)
        behind.append(operator.cluster.counters["list", "kopfexamples", 200] * 20 - len(looked))
        return False

    looked: set[str] = set()
    await operator.start()
    while len(looked) < len(many):
        await asyncio.sleep(0.01)
    assert max(behind) <= len(many) / 2  # the listing takes nearly no time


@pytest.mark.fastforward("exit")
async def test_listing_does_not_wait_for_handlers_that_wait(operator: Operator, many: list[str]) -> None:
    begun = asyncio.Event()

    @kopf.on.resume("kopfexamples")
    async def fn(**_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    await operator.start()
    await begun.wait()
    while operator.cluster.counters["list", "kopfexamples", 200] * 20 < len(many):
        await asyncio.sleep(0.01)
