"""Several handlers for one cause: in which order they run, and by which lifecycles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator

pytestmark = pytest.mark.lagging

IDS = ["c", "a", "d", "b", "e"]


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    """Several handlers of every change; their ids are not in the alphabetic order."""
    for id in IDS:
        fn = calls.noting(lambda param, **_: param)
        kopf.on.resume("kopfexamples", id=f"resume-{id}", param=f"resume-{id}")(fn)
        kopf.on.delete("kopfexamples", id=id, param=id)(fn)
        kopf.on.update("kopfexamples", id=id, param=id)(fn)
        kopf.on.create("kopfexamples", id=id, param=id)(fn)


async def test_handlers_run_in_the_order_of_their_declaration(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.start_and_handle(kex)
    assert calls == IDS
    await kex.change_and_wait(field="new")
    assert calls == IDS * 2
    await kex.delete_and_wait()
    assert calls == IDS * 3


async def test_resuming_is_mixed_in_by_the_order_of_declaration(operator: Operator, kex: Objects, calls: Calls) -> None:
    await kex.create()
    await operator.start()
    await kex.wait_handled()
    assert calls == [name for id in IDS for name in (f"resume-{id}", id)]


async def test_each_handler_is_saved_before_the_next_one_by_default(operator: Operator, kex: Objects) -> None:
    await operator.start_and_handle(kex)
    operator.cluster.reset_counters()
    await kex.change_and_wait(field="new")
    # The test's own patch, one patch after each of the handlers, the last of which also ends the handling.
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 1 + len(IDS)


async def test_all_at_once(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.start(lifecycle=kopf.lifecycles.all_at_once)
    await kex.create_and_wait()
    assert calls == IDS
    operator.cluster.reset_counters()
    await kex.change_and_wait(field="new")
    assert calls == IDS * 2
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 1 + 1


async def test_one_by_one(operator: Operator, kex: Objects, calls: Calls) -> None:
    await operator.start(lifecycle=kopf.lifecycles.one_by_one)
    await kex.create_and_wait()
    assert calls == IDS


@pytest.mark.parametrize("lifecycle", [kopf.lifecycles.randomized, kopf.lifecycles.shuffled])
async def test_random_orders(operator: Operator, kex: Objects, calls: Calls, lifecycle: Any) -> None:
    await operator.start(lifecycle=lifecycle)
    names = [f"obj{i}" for i in range(10)]
    for name in names:
        calls.items.clear()
        await kex.create_and_wait(name)
        assert sorted(calls) == sorted(IDS)  # each of them once
        if calls != IDS:
            break
    else:
        pytest.fail("The order was never random.")


@pytest.mark.fastforward
async def test_the_least_retried_handlers_go_first(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", registry=registry, id="retried", labels={"retry": "yes"})(
        calls.noting(lambda retry, **_: f"retried-{retry}", error=kopf.TemporaryError("again", delay=0), times=2)
    )
    registry.resources.insert(0, registry.resources.pop())  # declared the first
    await operator.start_and_handle(kex, labels={"retry": "yes"})
    assert calls == ["retried-0", *IDS, "retried-1", "retried-2"]


async def test_own_lifecycles(operator: Operator, kex: Objects, calls: Calls) -> None:
    seen = []

    def reverse(handlers: Sequence[Any], *, body: kopf.Body, reason: kopf.Reason, **_: Any) -> Sequence[Any]:
        seen.append((body["metadata"]["name"], reason, [handler.id for handler in handlers]))
        return [*reversed(handlers)][:2]

    await operator.start(lifecycle=reverse)
    await kex.create_and_wait()
    assert calls == [*reversed(IDS)]
    assert seen == [
        ("obj", kopf.Reason.CREATE, ["c", "a", "d", "b", "e"]),
        ("obj", kopf.Reason.CREATE, ["c", "a", "d"]),
        ("obj", kopf.Reason.CREATE, ["c"]),
    ]


@pytest.mark.fastforward
async def test_lifecycles_that_choose_nothing_are_asked_again_a_bit_later(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """They are not asked thousands of times per second."""
    asked = []

    def refuse(handlers: Sequence[Any], **_: Any) -> Sequence[Any]:
        asked.append(len(handlers))
        return handlers if len(asked) > 20 else []

    await operator.start(lifecycle=refuse)
    started = asyncio.get_running_loop().time()
    await kex.create_and_wait()
    assert calls == IDS
    assert asyncio.get_running_loop().time() - started >= 15


async def test_the_default_lifecycle_can_be_replaced(operator: Operator, kex: Objects, calls: Calls) -> None:
    def reverse(handlers: Sequence[Any], **_: Any) -> Sequence[Any]:
        return [*reversed(handlers)]

    kopf.set_default_lifecycle(reverse)
    try:
        assert kopf.get_default_lifecycle() is reverse
        await operator.start()
    finally:
        kopf.set_default_lifecycle(None)
    await kex.create_and_wait()
    assert calls == [*reversed(IDS)]
