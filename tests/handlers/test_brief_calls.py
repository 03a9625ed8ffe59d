"""Brief calls: many functions for one thread, unless they take longer than expected."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import AsyncIterator

import pytest

import kopf
from kopf._handlers.thread_pools import ThreadPools, get_abandoned_call
from kopf._settings.settings import ExecutionSettings
from tests.patience import PATIENCE


@pytest.fixture
async def pools() -> AsyncIterator[ThreadPools]:
    pools = ThreadPools(ExecutionSettings())
    yield pools
    pools.release()


@pytest.mark.loops
async def test_they_share_a_thread_in_their_order(pools: ThreadPools) -> None:
    order: list[int] = []

    def fn(n: int) -> tuple[int, int]:
        order.append(n)
        return n, threading.get_ident()

    results = await asyncio.gather(*(pools.call_briefly(functools.partial(fn, n)) for n in range(20)))
    assert order == [n for n, _ in results] == [*range(20)]
    assert threading.get_ident() not in {thread for _, thread in results}


@pytest.mark.loops
async def test_those_that_hang_hold_nobody(pools: ThreadPools) -> None:
    """Neither those before them, nor those after them, nor those that come later."""

    def fn(n: int) -> int | bool:
        return gate.wait(PATIENCE / 2) if n in (2, 5) else n

    gate = threading.Event()
    calls = [asyncio.create_task(pools.call_briefly(functools.partial(fn, n))) for n in range(9)]
    done = await asyncio.wait_for(asyncio.gather(*(call for n, call in enumerate(calls) if n not in (2, 5))), PATIENCE)
    later = await asyncio.wait_for(pools.call_briefly(lambda: "later"), PATIENCE)
    assert (done, later) == ([0, 1, 3, 4, 6, 7, 8], "later")
    assert [n for n, call in enumerate(calls) if not call.done()] == [2, 5]
    gate.set()
    assert await calls[2]
    assert await calls[5]


async def test_errors_are_of_their_own_calls(pools: ThreadPools) -> None:
    def fail() -> None:
        raise ValueError("boo")

    results = await asyncio.gather(pools.call_briefly(fail), pools.call_briefly(lambda: 1), return_exceptions=True)
    assert [repr(result) for result in results] == ["ValueError('boo')", "1"]


async def test_cancelled_calls(pools: ThreadPools) -> None:
    """One that has not begun never does; one that has, goes on in its thread, and it is told so."""
    begun, gate, called = threading.Event(), threading.Event(), []

    def hang() -> None:
        begun.set()
        gate.wait(PATIENCE / 2)

    hung = asyncio.create_task(pools.call_briefly(hang))
    next_one = asyncio.create_task(pools.call_briefly(lambda: called.append("called")))
    await asyncio.sleep(0)
    next_one.cancel()
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    hung.cancel()
    with pytest.raises(asyncio.CancelledError) as info:
        await hung
    call = get_abandoned_call(info.value)
    assert call is not None
    assert "hang()" in call.describe_stack()
    gate.set()
    await pools.call_briefly(lambda: None)
    assert called == []


async def test_replaced_executors_are_used(pools: ThreadPools) -> None:
    settings = kopf.OperatorSettings().execution
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="my-own") as executor:
        settings.executor = executor
        pools = ThreadPools(settings)
        results = await asyncio.gather(*(pools.call_briefly(lambda: threading.current_thread().name) for _ in range(3)))
        assert results == ["my-own_0"] * 3
    with pytest.raises(RuntimeError):  # it is shut down
        await asyncio.wait_for(pools.call_briefly(lambda: None), PATIENCE)
