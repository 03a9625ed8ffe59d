"""The timer that all connections share, in all event loops."""
from __future__ import annotations

import asyncio

import pytest

from kopf._serving.timed_connections import SharedTimer

pytestmark = pytest.mark.loops


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
