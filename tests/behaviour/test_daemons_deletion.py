"""Daemons together with deletion handlers and finalizers; and what remains in memory of gone objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

import kopf
from kopf._controller.background.runs import BackgroundRun, ObjectBackground
from kopf._controller.object_state import ObjectState
from tests.behaviour.objects import FINALIZER, Objects, get_annotations, get_finalizers
from tests.behaviour.running import Calls, Decorator, Operator, do_nothing

pytestmark = pytest.mark.lagging


def count_leftovers() -> dict[str, int]:
    """How many internal things of objects are in memory."""
    gc.collect()
    classes = (ObjectBackground, BackgroundRun, ObjectState)
    objects = gc.get_objects()
    return {cls.__name__: sum(isinstance(obj, cls) for obj in objects) for cls in classes}


async def test_nothing_but_the_finalizer_is_put_on_the_object_and_before_the_daemon_starts(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples")(calls.accompanying(lambda meta, **_: [*meta["finalizers"]]))
    await operator.start_and_call(kex, calls)
    obj = await kex.delete_and_wait()
    assert calls == [[FINALIZER]]
    assert get_annotations(obj) == {}
    assert "status" not in obj
    assert all(get_finalizers(obj) in ([], [FINALIZER]) for obj in kex.get_history())


@pytest.mark.fastforward
@pytest.mark.parametrize(("daemon_time", "handler_time"), [(0, 0), (100, 0), (0, 100), (100, 100)])
async def test_deletion_handlers_and_daemons_are_both_awaited_and_happen_once(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    daemon_time: float,
    handler_time: float,
) -> None:
    kopf.daemon("kopfexamples")(calls.accompanying("daemon started", "daemon exited", lasting=daemon_time))
    for id in ("first", "second"):

        @kopf.on.delete("kopfexamples", id=id, param=id)
        async def delete_fn(param: str, retry: int, **_: Any) -> None:
            await asyncio.sleep(handler_time)
            calls.append(f"{param} {retry}")
            if retry == 0:
                raise kopf.TemporaryError("once more", delay=30)

    await operator.start_and_call(kex, calls)
    await kex.delete_and_wait()
    expected = ["daemon exited", "daemon started", "first 0", "first 1", "second 0", "second 1"]
    assert sorted(calls) == expected


async def test_results_of_deletion_and_of_daemons_on_blocked_objects(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Both are stored before our finalizer is removed, and no other one is touched."""
    kopf.daemon("kopfexamples", id="daemon_fn")(calls.accompanying("started", result="exited"))
    kopf.on.delete("kopfexamples", id="delete_fn")(calls.noting("deleted", result="done"))
    await operator.start_and_call(kex, calls, finalizers=["example.com/theirs"])
    await kex.delete()
    obj = await kex.wait(
        lambda obj: get_finalizers(obj) == ["example.com/theirs"] and "deletionTimestamp" in obj["metadata"]
    )
    assert obj["status"] == {"daemon_fn": "exited", "delete_fn": "done"}
    await kex.release_and_wait()
    assert calls == ["started", "deleted"]


async def test_timers_in_the_middle_of_a_run_are_awaited(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", interval=0.001)
    async def fn(**_: Any) -> None:
        calls.append("started")
        await allowed.wait()
        calls.append("ended")

    allowed = asyncio.Event()
    await operator.start_and_call(kex, calls)
    await kex.delete()
    await kex.create("other", finalizers=["example.com/theirs"])
    await calls.wait_length(2)  # the operator has seen the deletion by now
    assert get_finalizers(await kex.get()) == [FINALIZER]
    allowed.set()
    await kex.wait_gone()


async def test_the_memory_of_gone_objects_is_freed(operator: Operator, kex: Objects, calls: Calls) -> None:
    class Value:
        """Something that a weak reference can be made to."""

    @kopf.daemon("kopfexamples", id="daemon_fn")
    async def daemon_fn(memo: kopf.Memo, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        memo.value = Value()
        calls.append(weakref.ref(memo.value))
        await stopped.wait()

    kopf.timer("kopfexamples", interval=0.01)(do_nothing)

    @kopf.on.event("kopfexamples")
    @kopf.on.create("kopfexamples")
    @kopf.on.delete("kopfexamples")
    @kopf.index("kopfexamples")
    async def fn(name: str, **_: Any) -> str:
        return name

    await operator.start()
    before = count_leftovers()
    names = await kex.create_all([f"obj{i}" for i in range(10)])
    await calls.wait_length(10)
    assert count_leftovers()["ObjectBackground"] == before["ObjectBackground"] + 10
    for name in names:
        await kex.delete_and_wait(name)
    for _ in range(100):
        if count_leftovers() == before and not any(ref() for ref in calls):
            break
        await asyncio.sleep(0.01)
    assert count_leftovers() == before
    assert [ref() for ref in calls] == [None] * 10


@pytest.mark.parametrize(
    "decorator",
    [kopf.on.event, kopf.on.create, kopf.on.delete, kopf.index, kopf.timer],
    ids=lambda decorator: decorator.__name__,
)
async def test_memos_of_gone_objects_are_freed_with_any_kind_of_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
) -> None:
    class Value:
        """Something that a weak reference can be made to."""

    @decorator("kopfexamples")
    async def fn(memo: kopf.Memo, **_: Any) -> None:
        if "value" not in memo:
            memo.value = Value()
            calls.append(weakref.ref(memo.value))

    await operator.start()
    for n in range(1, 4):
        obj = await kex.create(f"obj{n}")
        if decorator is kopf.on.delete:
            await kex.wait(lambda obj: FINALIZER in get_finalizers(obj), f"obj{n}")
        else:
            await calls.wait_length(n)
        await kex.delete(f"obj{n}")
        await kex.wait_gone(f"obj{n}", uid=obj["metadata"]["uid"])
    assert len(calls) == 3
    for _ in range(100):
        gc.collect()
        if not any(ref() for ref in calls):
            break
        await asyncio.sleep(0.01)
    assert [ref() for ref in calls] == [None] * 3
