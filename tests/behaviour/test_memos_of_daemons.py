"""Memos of daemons & timers: the same ones as of the other handlers of the object, whoever comes first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_finalizers
from tests.behaviour.running import Calls, Decorator, Operator


@pytest.mark.fastforward
async def test_the_documented_example(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    async def pinged(memo: kopf.Memo, **_: Any) -> None:
        memo.counter = memo.get("counter", 0) + 1

    @kopf.timer("kopfexamples", interval=10)
    async def tick(memo: kopf.Memo, **_: Any) -> None:
        calls.append(memo.counter)
        memo.counter = 0

    await operator.start_and_call(kex, calls, times=2)
    for n in range(5):
        await kex.merge({"spec": {"field": f"new{n}"}})
    await calls.wait(lambda items: 5 in items)


@pytest.mark.parametrize("decorator", [kopf.daemon, kopf.timer], ids=["daemon", "timer"])
@pytest.mark.parametrize("first", ["background", "handler"])
async def test_they_share_the_memo_with_handlers_whoever_writes_first(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
    first: str,
) -> None:
    """Even if nothing was in the memo for a long time."""

    @decorator("kopfexamples")
    async def background_fn(memo: kopf.Memo, **_: Any) -> None:
        if first == "background":
            memo.value = "of the background"
        calls.append("started")
        while "answer" not in memo:
            await asyncio.sleep(0.001)
        calls.append((memo.get("value"), memo.answer))

    @kopf.on.update("kopfexamples")
    async def update_fn(memo: kopf.Memo, **_: Any) -> None:
        memo.setdefault("value", "of the handler")
        memo.answer = "updated"

    await operator.start_and_call(kex, calls)
    await kex.wait_handled()
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(2)
    assert calls[1] == ("of the background" if first == "background" else "of the handler", "updated")


async def test_the_filters_and_the_indexing_functions_share_it_too(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.index("kopfexamples")
    async def idx(memo: kopf.Memo, **_: Any) -> None:
        memo.indexed = memo.get("indexed", 0) + 1

    kopf.on.create("kopfexamples", when=lambda memo, **_: memo.indexed > 0)(
        calls.noting(lambda memo, **_: memo.indexed)
    )
    await operator.start_and_handle(kex)
    assert len(calls) == 1


async def test_daemons_after_a_filter_flip_have_the_same_memo(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples", labels={"match": "yes"})
    async def fn(memo: kopf.Memo, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        memo.starts = memo.get("starts", 0) + 1
        calls.append(memo.starts)
        await stopped.wait()

    await operator.start_and_create(kex, labels={"match": "yes"})
    for n in range(1, 4):
        await calls.wait_length(n)
        await kex.wait(get_finalizers)
        await kex.merge({"metadata": {"labels": {"match": "no"}}})
        await kex.wait(lambda obj: obj["metadata"]["labels"]["match"] == "no" and not get_finalizers(obj))
        await kex.merge({"metadata": {"labels": {"match": "yes"}}})
    await calls.wait_length(4)
    assert calls == [1, 2, 3, 4]


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.daemon], ids=["handler", "daemon"])
async def test_recreated_objects_have_new_memos(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
) -> None:
    @decorator("kopfexamples")
    async def fn(memo: kopf.Memo, stopped: kopf.AsyncDaemonStopperChecker | None = None, **_: Any) -> None:
        calls.append(dict(memo))
        memo.value = "something"
        if stopped is not None:
            await stopped.wait()

    await operator.start()
    for n in range(1, 4):
        obj = await kex.create()
        await calls.wait_length(n)
        await kex.delete()
        await kex.wait_gone(uid=obj["metadata"]["uid"])
    assert calls == [{}, {}, {}]
