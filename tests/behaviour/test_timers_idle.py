"""Idling timers: those that wait until the object calms down; alone and combined with the other options."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def change(kex: Objects, **spec: Any) -> float:
    """Change the object; get the time of it."""
    await kex.merge({"spec": spec})
    return now()


async def test_each_change_begins_the_idle_time_anew(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Without an interval, it is called once after each time of changes."""
    kopf.timer("kopfexamples", idle=10)(calls.noting(lambda spec, **_: (spec["n"], now())))
    await operator.start()
    created = now()
    await kex.create(spec={"n": 0})
    await asyncio.sleep(1000)
    for n in range(1, 11):
        changed = await change(kex, n=n)
        await asyncio.sleep(6)
    await asyncio.sleep(1000)
    assert calls == [(0, pytest.approx(created + 10, abs=1)), (10, pytest.approx(changed + 10, abs=0.5))]


async def test_with_an_interval_it_repeats_until_the_next_change(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.timer("kopfexamples", idle=100, interval=10)(calls.noting(lambda **_: now()))
    await operator.start()
    created = now()
    await kex.create()
    await asyncio.sleep(125)
    changed = await change(kex, field="new")
    await asyncio.sleep(115)
    assert [time - created for time in calls.items[:3]] == pytest.approx([100, 110, 120], abs=1)
    assert [time - changed for time in calls.items[3:]] == pytest.approx([100, 110], abs=1)


@pytest.mark.lagging(False)
async def test_combined_with_the_initial_delay_the_longest_one_wins(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """A minute of warming up, then every ten seconds if unmodified for ten minutes."""
    kopf.timer("kopfexamples", initial_delay=60, interval=10, idle=600, id="fn")(
        calls.noting(lambda **_: ("usual", now()))
    )
    kopf.timer("kopfexamples", initial_delay=600, interval=10, idle=60, id="long_fn")(
        calls.noting(lambda **_: ("long", now()))
    )
    await operator.start()
    created = now()
    await kex.create()
    await asyncio.sleep(615)
    changed = await change(kex, field="new")
    await asyncio.sleep(605)
    usual = [time for key, time in calls if key == "usual"]
    assert [time - created for time in usual[:2]] == pytest.approx([600, 610], abs=1)
    assert [time - changed for time in usual[2:]] == pytest.approx([600], abs=1)
    long = [time for key, time in calls if key == "long"]
    assert [time - created for time in long[:2]] == pytest.approx([600, 610], abs=1)
    assert [time - changed for time in long[2:4]] == pytest.approx([60, 70], abs=1)


@pytest.mark.lagging(False)
async def test_sharp_and_idle(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", idle=100, interval=10, sharp=True)
    async def fn(**_: Any) -> None:
        calls.append(now())
        await asyncio.sleep(4)

    await operator.start()
    created = now()
    await kex.create()
    await calls.wait_length(3)
    assert [time - created for time in calls.items[:3]] == pytest.approx([100, 110, 120], abs=1)


async def test_own_results_are_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    """A result that differs from the previous one modifies the object, which resets the idle time."""

    @kopf.timer("kopfexamples", idle=100, interval=10)
    async def fn(**_: Any) -> int:
        calls.append(now())
        return len(calls)

    await operator.start_and_create(kex)
    await calls.wait_length(4)
    assert get_pauses(calls.items[:4]) == pytest.approx([100] * 3, abs=1)


async def test_changes_during_the_call_are_not_lost(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", idle=10)
    async def fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append((spec["field"], now()))
        await asyncio.sleep(100)

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await change(kex, field="new")
    await calls.wait_length(2)
    assert [field for field, _ in calls] == ["value", "new"]


async def test_errors_of_idle_timers_are_retried_by_their_delay(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.timer("kopfexamples", idle=100)(
        calls.noting(lambda retry, **_: (retry, now()), error=kopf.TemporaryError("again", delay=5), times=2)
    )
    await operator.start()
    created = now()
    await kex.create()
    await asyncio.sleep(1000)
    assert [retry for retry, _ in calls] == [0, 1, 2]
    assert [time - created for _, time in calls] == pytest.approx([100, 105, 110], abs=1)
