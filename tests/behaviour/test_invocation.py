"""How the functions are called: coroutines in the event loop, all others in threads."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

import kopf
from kopf._controller import raw_events
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE


async def test_async_handlers_run_in_the_loop_of_the_operator(operator: Operator, kex: Objects, calls: Calls) -> None:
    fn = calls.noting(lambda **_: (threading.get_ident(), asyncio.get_running_loop()))
    kopf.on.event("kopfexamples", id="fn")(fn)
    kopf.on.create("kopfexamples", id="fn")(fn)
    await operator.start_and_handle(kex)
    assert set(calls) == {(threading.get_ident(), asyncio.get_running_loop())}


async def test_sync_handlers_run_in_threads(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.event("kopfexamples", id="fn")
    def fn(**_: Any) -> None:
        calls.append(threading.get_ident())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    await operator.start_and_handle(kex)
    assert len(calls) >= 2
    assert threading.get_ident() not in calls


async def test_sync_handlers_of_different_objects_run_in_parallel(operator: Operator, kex: Objects) -> None:
    barrier = threading.Barrier(3)

    @kopf.on.create("kopfexamples", errors=kopf.ErrorsMode.PERMANENT, id="fn")
    def fn(**_: Any) -> str:
        barrier.wait(PATIENCE)
        return "passed"

    await operator.start()
    names = await kex.create_all(["a", "b", "c"])
    for name in names:
        obj = await kex.wait_handled(name)
        assert obj["status"] == {"fn": "passed"}


async def test_async_handlers_of_different_objects_run_in_parallel(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)
        await calls.wait_length(150)

    await operator.start()
    names = await kex.create_all([f"obj{i}" for i in range(150)])
    await kex.wait_all_handled(names)
    assert sorted(calls) == sorted(names)


async def test_handlers_of_one_object_never_run_in_parallel(operator: Operator, kex: Objects, calls: Calls) -> None:
    running = 0

    @kopf.on.create("kopfexamples", id="create")
    @kopf.on.update("kopfexamples", id="update1")
    @kopf.on.update("kopfexamples", id="update2")
    async def fn(spec: kopf.Spec, **_: Any) -> None:
        nonlocal running
        running += 1
        calls.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    await operator.start_and_create(kex, spec={"count": 0})
    for count in range(1, 21):
        await kex.merge({"spec": {"count": count}})
    await kex.wait_handled(count=20)
    assert set(calls) == {1}


async def test_raw_events_of_one_object_come_one_by_one_and_in_order(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.event("kopfexamples", id="fn")
    async def fn(spec: kopf.Spec, event: kopf.RawEvent, **_: Any) -> None:
        await asyncio.sleep(0.002)
        calls.append((event["type"], spec["count"]))

    await operator.start_and_create(kex, spec={"count": 0})
    for count in range(1, 21):
        await kex.merge({"spec": {"count": count}})
    await kex.delete()
    await calls.wait_length(22)
    assert calls == [("ADDED", 0), *(("MODIFIED", count) for count in range(1, 21)), ("DELETED", 20)]


@pytest.mark.parametrize(("limit", "value"), [("_ENOUGH_EVENTS", 10), ("_ENOUGH_BYTES", 10_000)])
async def test_raw_events_do_not_fill_the_memory_while_their_handler_hangs(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(raw_events, limit, value)
    released = asyncio.Event()

    @kopf.on.event("kopfexamples", id="fn")
    async def fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append(spec["count"])
        await released.wait()

    await operator.start_and_create(kex, spec={"count": 0})
    for count in range(1, 51):
        await kex.merge({"spec": {"count": count}})
    warning = await logs.wait(r"\d+ events .\d MiB. of kopfexamples.v1.kopf.dev wait for their handlers \(fn\), .*")
    assert warning.levelname == "WARNING"
    assert calls == [0]
    released.set()
    await calls.wait_length(51)
    assert calls == [*range(51)]


class Handlers:
    """Handlers of all unusual kinds."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def method(self, name: str, **_: Any) -> None:
        self.calls.append(("method", name))

    async def async_method(self, name: str, **_: Any) -> None:
        self.calls.append(("async method", name))

    @staticmethod
    def static(calls: Calls, name: str, **_: Any) -> None:
        calls.append(("static", name))

    async def __call__(self, name: str, **_: Any) -> None:
        self.calls.append(("instance", name))


async def test_methods_partials_lambdas_and_callable_objects(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    async def async_fn(prefix: str, *, name: str, **_: Any) -> None:
        calls.append((prefix, name))

    instance = Handlers(calls)
    declare = functools.partial(kopf.on.create, "kopfexamples", registry=registry)
    declare()(instance.method)
    declare()(instance.async_method)
    declare(id="static")(functools.partial(Handlers.static, calls))
    declare(id="instance")(instance)
    declare(id="partial")(functools.partial(async_fn, "partial"))
    declare(id="lambda")(lambda name, **_: calls.append(("lambda", name)))
    declare(id="async lambda")(lambda name, **_: async_fn("async lambda", name=name))

    await operator.start_and_handle(kex)
    assert calls == [
        (kind, "obj") for kind in ["method", "async method", "static", "instance", "partial", "lambda", "async lambda"]
    ]


async def test_the_number_of_threads_can_be_limited(operator: Operator, kex: Objects, calls: Calls) -> None:
    """A burst of objects with few threads: all are handled, never more of them at once than the threads."""
    lock, running = threading.Lock(), 0

    @kopf.on.create("kopfexamples", id="fn")
    def fn(**_: Any) -> None:
        nonlocal running
        with lock:
            running += 1
            calls.append(running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1

    operator.set("execution.max_workers", 2)
    await operator.start()
    names = await kex.create_all([f"obj{i}" for i in range(100)])
    await kex.wait_all_handled(names)
    assert len(calls) == 100
    assert max(calls) <= 2


@pytest.mark.parametrize("limit", [1, 3])
async def test_the_number_of_objects_handled_at_once_can_be_limited(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    limit: int,
) -> None:
    running = 0

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(**_: Any) -> None:
        nonlocal running
        running += 1
        calls.append(running)
        await calls.wait_length(limit)  # at least so many run at once
        await asyncio.sleep(0.002)
        running -= 1

    operator.set("queueing.worker_limit", limit)
    await operator.start()
    names = await kex.create_all([f"obj{i}" for i in range(20)])
    await kex.wait_all_handled(names)
    assert len(calls) == 20
    assert max(calls) == limit
