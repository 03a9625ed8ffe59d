"""Deadlines of requests & connections: they share one timer, in all event loops."""

from __future__ import annotations

import asyncio

import pytest

from kopf._client.http.deadlines import Deadlines, SharedTimer

pytestmark = pytest.mark.loops


class Request:
    """One that is told when it is too late."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()

    def check(self, now: float) -> float | None:
        self.failed.set()
        return None


@pytest.mark.parametrize("delay", [-1.0, 0.0, 0.0002, 0.0108])
async def test_deadlines_of_now_and_of_later(delay: float) -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines()
    first, second, third = Request(), Request(), Request()
    due = loop.time() + delay
    deadlines.follow(first, due)
    deadlines.follow(second, due + 1000)
    deadlines.follow(third, due - 0.0001)
    await third.failed.wait()
    assert first.failed.is_set()
    deadlines.stop()


@pytest.mark.parametrize("delay", [-1.0, 0.0, 0.0002, 0.0108])
async def test_it_rings_at_the_earliest_time(delay: float) -> None:
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()
    timer = SharedTimer(rung.set)
    deadline = loop.time() + delay
    for later in (0, 1000, -0.0001, 1000):
        timer.ring_at(deadline + later)
    await rung.wait()
    assert loop.time() < deadline + 1000
    timer.stop()
