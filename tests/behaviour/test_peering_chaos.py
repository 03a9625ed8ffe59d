"""Two operators take over from each other again and again, while the API fails, and the objects change."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, Obj, Objects
from tests.behaviour.peerings import create_peering, make_other, running
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.usefixtures("by_network")

ROUNDS = 12
NAMES = [f"obj{number}" for number in range(30)]


def has_seen(value: str, obj: Obj) -> bool:
    return bool((obj.get("status") or {}).get("seen") == value)


def declare(registry: kopf.OperatorRegistry, calls: Calls, operator: str) -> None:
    alive: Counter[str] = Counter()

    @kopf.on.create("kopfexamples", registry=registry)
    @kopf.on.update("kopfexamples", registry=registry)
    @kopf.on.resume("kopfexamples", registry=registry)
    async def handle(name: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        await asyncio.sleep(random.uniform(0, 0.01))
        patch.status["seen"] = spec["field"]

    @kopf.daemon("kopfexamples", registry=registry)
    async def accompany(name: str, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        alive[name] += 1
        calls.append((operator, name, alive[name]))
        try:
            await stopped.wait()
        finally:
            alive[name] -= 1


@pytest.mark.parametrize("seed", [1])
async def test_everything_is_handled_in_the_end(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    cluster: LocalCluster,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    seed: int,
) -> None:
    """Every object, in its last state; and its daemon runs once in the operator that works."""
    logs.expected.append(".")
    dice = random.Random(seed)
    peering = await create_peering(api)
    other = make_other(registry)
    declare(registry, calls, "one")
    declare(other, calls, "two")
    values: dict[str, str] = {}

    async def change() -> None:
        for number in range(250):
            name = dice.choice(NAMES)
            if name not in values:
                await kex.create(name, spec={"field": f"v{number}"})
            else:
                await kex.merge({"spec": {"field": f"v{number}"}}, name)
            values[name] = f"v{number}"
            await asyncio.sleep(0.004)

    async def trouble() -> None:
        for number in range(ROUNDS):
            await asyncio.sleep(dice.uniform(0.02, 0.15))
            match number % 4:
                case 0:
                    cluster.faults.cut_watches()
                case 1:
                    await peering.put("human", priority=99)
                case 2:
                    cluster.faults.compact()
                    cluster.faults.cut_watches()
                case 3:
                    await peering.remove("human")

    await operator.start(priority=1)
    changing, troubling = asyncio.create_task(change()), asyncio.create_task(trouble())
    for priority in (2, 0, 3, 2):
        async with running(cluster, other, priority=priority):
            await asyncio.sleep(dice.uniform(0.1, 0.4))
    await asyncio.gather(changing, troubling)
    for name, value in values.items():
        await kex.wait(functools.partial(has_seen, value), name)
        await kex.wait_handled(name, field=value)
    await operator.stop()
    assert values.keys() == set(NAMES)
    assert max(count for _, _, count in calls) == 1
    assert {name for _, name, _ in calls} == set(NAMES)
    assert not [record for record in logs.records if record.exc_info]
