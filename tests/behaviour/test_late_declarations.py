"""Handlers that are declared while the operator runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Objects
from tests.behaviour.resources import create, define
from tests.behaviour.running import Calls, Operator


async def test_handlers_of_watched_resources(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.event("kopfexamples", id="early")(calls.noting(lambda name, **_: ("early", name)))

    await operator.start_and_call(kex, calls, "old")

    @kopf.index("kopfexamples")
    async def idx(name: str, **_: Any) -> str:
        return name

    kopf.on.create("kopfexamples", id="create_fn")(calls.noting(lambda name, **_: ("created", name)))

    kopf.daemon("kopfexamples", id="daemon_fn")(
        calls.accompanying(lambda name, idx, **_: ("daemon", name, sorted(idx[None])))
    )

    await calls.wait(lambda items: ("created", "old") in items and ("daemon", "old", ["old"]) in items)
    await kex.create("new")
    await calls.wait(lambda items: ("created", "new") in items and ("daemon", "new", ["new", "old"]) in items)
    assert [*calls].count(("created", "old")) == 1


async def test_handlers_of_other_resources(operator: Operator, api: API, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    async def early(**_: Any) -> None: ...

    define(operator.cluster, "lates")
    await operator.start()

    def declare() -> None:
        kopf.on.event("lates", id="late")(calls.noting(lambda name, **_: name))

    await asyncio.to_thread(declare)
    await create(api, "lates", "a")
    await calls.wait_length(1)
    assert calls == ["a"]


@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
async def test_running_handlers_are_not_interrupted(
    operator: Operator, kex: Objects, calls: Calls, is_sync: bool
) -> None:
    """Although the operator would not wait for them so long at its exit."""
    operator.set("queueing.exit_timeout", 0.1)

    def declare() -> None:
        @kopf.on.event("kopfexamples")
        async def late(**_: Any) -> None:
            if "late" not in calls:
                calls.append("late")

    loop = asyncio.get_running_loop()
    if is_sync:

        @kopf.on.create("kopfexamples")
        def sync_fn(retry: int, **_: Any) -> None:
            calls.append(("begun", retry))
            loop.call_soon_threadsafe(declare)
            time.sleep(0.5)
            calls.append(("done", retry))
    else:

        @kopf.on.create("kopfexamples")
        async def async_fn(retry: int, **_: Any) -> None:
            calls.append(("begun", retry))
            declare()
            await asyncio.sleep(0.5)
            calls.append(("done", retry))

    await operator.start_and_create(kex)
    await kex.wait_handled()
    await calls.wait_length(3)
    assert calls == [("begun", 0), ("done", 0), "late"]
