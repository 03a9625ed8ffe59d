"""Deletion handlers are called once, whatever else is going on with the object, and however late its events are."""

from __future__ import annotations

import asyncio
import collections
import os
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

COUNT = int(os.environ.get("KOPF_TEST_DELETIONS") or 5)
"""How many objects are deleted at once with each of the companions."""


COMPANIONS = {
    "daemon": {"daemon": "lasting"},
    "quick": {"daemon": "quick"},
    "timer": {"timer": "yes"},
    "both": {"daemon": "lasting", "timer": "yes"},
}


@pytest.mark.parametrize("handlers", [1, 2])
async def test_deletion_handlers_beside_daemons_and_timers(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    handlers: int,
) -> None:
    accompanied: set[str] = set()

    def note(name: str) -> None:
        """With many objects, there are too many runs of timers to look through all of them again and again."""
        if name not in accompanied:
            accompanied.add(name)
            calls.append(f"{name} runs")

    for number in range(handlers):
        kopf.on.delete(objects.plural, id=f"delete{number}", param=number)(
            calls.noting(lambda name, param, **_: (name, param), result="deleted")
        )

    @kopf.daemon(objects.plural, id="daemon_fn", labels={"daemon": kopf.PRESENT})
    async def daemon_fn(name: str, labels: kopf.Labels, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        note(name)
        if labels["daemon"] != "quick":
            await stopped.wait()

    # With many objects, rarer: a loop that does nothing but timers has no time for deletions.
    @kopf.timer(objects.plural, interval=max(0.1, COUNT / 125), id="timer_fn", labels={"timer": kopf.PRESENT})
    async def timer_fn(name: str, **_: Any) -> None:
        note(name)
        await asyncio.sleep(0.01)

    names = [f"{companions}-{number}" for companions in COMPANIONS for number in range(COUNT)]
    await operator.start(watching=(objects.plural,))
    for name in names:
        await objects.create(name, labels=COMPANIONS[name.partition("-")[0]])
    await calls.wait(lambda _: len(accompanied) == len(names))
    await objects.delete_all(names)
    while sum(type_ == "DELETED" for type_, _ in objects.history) < len(names):
        await asyncio.sleep(1)
    await asyncio.sleep(5)
    counts = collections.Counter(call for call in calls if isinstance(call, tuple))
    assert counts == {(name, number): 1 for name in names for number in range(handlers)}


async def test_states_from_before_the_release_are_not_handled_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    delete_fn = calls.noting("deleted")
    kopf.on.delete("kopfexamples", id="two")(delete_fn)
    kopf.on.delete("kopfexamples", id="one")(delete_fn)
    await operator.start_and_handle(kex, finalizers=["example.com/other"])
    operator.cluster.faults.lag_watches(3)
    await kex.delete()
    await kex.merge({"metadata": {"labels": {"l": "1"}}})
    await calls.wait_length(2)
    await asyncio.sleep(10)
    await kex.release_and_wait()
    assert len(calls) == 2
