"""How many connections there are: each patch needs one, and any number of daemons and timers can have patches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import kopf
from kopf._client.http import api
from tests.behaviour.objects import Objects
from tests.behaviour.running import Operator
from tests.patience import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("by_network")

WIDTH, COUNT = 30, 60
"""How many connections there can be for the patches of one resource, and how many objects want one at once."""

Decorate = Callable[[str], Callable[..., Any]]
on_creation: Decorate = kopf.on.create
by_timer: Decorate = functools.partial(kopf.timer, interval=1000, optional=True)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LANE_WIDTH", WIDTH)


@pytest.fixture
async def barrier() -> asyncio.Barrier:
    return asyncio.Barrier(COUNT)


def declare(decorate: Decorate, barrier: asyncio.Barrier) -> None:
    """Let the handlers wait for each other, and end together."""

    @decorate("kopfexamples")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        await barrier.wait()
        patch.status["done"] = True


async def count_connections(operator: Operator, kex: Objects) -> int:
    """Create the objects, wait until they are patched; tell how many more connections there are at once."""
    operator.cluster.faults.inject(action="delay", latency=0.5, verb="patch", resource="kopfexamples")
    await operator.start()
    names = [f"obj-{number}" for number in range(COUNT)]
    before = peak = psutil.Process().num_fds()
    await kex.create_all(names)
    async with asyncio.timeout(PATIENCE):
        for name in names:
            while not any(obj.get("status") for obj in kex.get_history(name)):
                peak = max(peak, psutil.Process().num_fds())
                await asyncio.sleep(0.005)
    return (peak - before) // 2  # the cluster is in the same process


@pytest.mark.parametrize("decorate", [on_creation, by_timer], ids=["creation", "timer"])
async def test_those_who_end_together_are_not_patched_at_once(
    operator: Operator,
    kex: Objects,
    barrier: asyncio.Barrier,
    decorate: Decorate,
) -> None:
    declare(decorate, barrier)
    assert WIDTH / 2 <= await count_connections(operator, kex) <= WIDTH + 10


async def test_there_are_as_many_as_objects_may_be_processed(
    operator: Operator,
    kex: Objects,
    barrier: asyncio.Barrier,
) -> None:
    declare(by_timer, barrier)
    operator.set("queueing.worker_limit", COUNT)
    assert await count_connections(operator, kex) > WIDTH + 10


@pytest.mark.fastforward("exit")
async def test_other_resources_do_not_wait(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    barrier: asyncio.Barrier,
) -> None:
    declare(by_timer, barrier)
    kopf.on.create("kopfstatusexamples", id="fn")(lambda **_: "done")
    operator.cluster.faults.inject(action="delay", latency=3 * PATIENCE, verb="patch", resource="kopfexamples")
    await operator.start()
    before = psutil.Process().num_fds()
    await kex.create_all(f"obj-{number}" for number in range(COUNT))
    await wait_until(lambda: (psutil.Process().num_fds() - before) // 2 >= WIDTH - 10)
    await sub.create_and_wait()
