"""When the operator exits in the middle of everything, what its handlers have done is saved."""

from __future__ import annotations

import asyncio
import collections
import os
import random
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress, is_handled
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

EXITS = int(os.environ.get("KOPF_TEST_EXITS") or 6)
"""How many times the operator exits in the middle of everything."""


async def test_the_second_of_two_requests_is_not_cut_by_the_exit(
    operator: Operator,
    sub: Objects,
    calls: Calls,
) -> None:
    fn = calls.noting(lambda param, **_: param, result="result")
    kopf.on.create("kopfstatusexamples", id="two", param="two")(fn)
    kopf.on.create("kopfstatusexamples", id="one", param="one")(fn)
    await operator.start(watching=("kopfstatusexamples",))
    operator.cluster.faults.inject(action="delay", verb="patch", latency=2.2)
    await sub.create()
    await calls.wait_length(1)
    await operator.stop()
    operator.cluster.faults.clear()
    assert get_progress(await sub.get())[calls[0]]["success"] is True
    await operator.start(watching=("kopfstatusexamples",))
    await sub.wait_handled()
    assert sorted(calls) == ["one", "two"]


async def test_what_has_succeeded_is_saved_when_the_next_handler_is_cancelled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="one")(calls.noting("one"))

    @kopf.on.create("kopfexamples", id="two")
    async def two(**_: Any) -> None:
        calls.append("two")
        if len(calls) == 2:
            await asyncio.Event().wait()

    await operator.start(lifecycle=kopf.lifecycles.all_at_once)
    await kex.create()
    await calls.wait_length(2)
    await operator.stop()
    assert get_progress(await kex.get())["one"]["success"] is True
    await operator.start(lifecycle=kopf.lifecycles.all_at_once)
    await kex.wait_handled()
    assert calls == ["one", "two", "two"]


@pytest.mark.parametrize("seed", range(max(2, EXITS // 3)))
async def test_exits_in_the_middle_of_cycles_repeat_nothing_that_has_ended(
    operator: Operator,
    sub: Objects,
    calls: Calls,
    seed: int,
) -> None:
    dice = random.Random(seed)

    for number in range(4):

        @kopf.on.create("kopfstatusexamples", id=f"fn{number}", param=number)
        async def fn(name: str, param: int, patch: kopf.Patch, **_: Any) -> str:
            await asyncio.sleep(dice.uniform(0, 0.3))
            patch.status["seen"] = param
            calls.append((name, param))
            return "result"

    operator.cluster.faults.inject(action="delay", verb="patch", latency=0.2, rate=0.5)
    names = [f"obj{number}" for number in range(max(5, EXITS // 3))]
    await sub.create_all(names)
    for _ in range(EXITS):
        await operator.start(watching=("kopfstatusexamples",))
        await asyncio.sleep(dice.uniform(0, 1))
        await operator.stop()
    operator.cluster.faults.clear()
    await operator.start(watching=("kopfstatusexamples",))
    for name in names:
        await sub.wait(is_handled, name)
    counts = collections.Counter(calls.items)
    assert counts == {(name, number): 1 for name in names for number in range(4)}
