"""Daemons, which accompany every object: how they begin, what they see, and how they learn that it is time to exit."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator, get_duration


async def test_they_are_started_for_every_created_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.daemon("kopfexamples")(calls.accompanying(lambda name, **_: name))
    await operator.start()
    await kex.create_all(("a", "b", "c"))
    await calls.wait_length(3)
    await kex.merge({"spec": {"field": "new"}}, "a")
    await kex.create("last")
    await calls.wait_length(4)
    assert sorted(calls) == ["a", "b", "c", "last"]


async def test_they_are_started_for_existing_objects_when_the_operator_starts_and_restarts(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.daemon("kopfexamples")(calls.accompanying(lambda name, **_: name))
    await kex.create()
    await operator.start()
    await calls.wait_length(1)
    await operator.restart()
    await calls.wait_length(2)
    assert calls == ["obj", "obj"]


async def test_async_daemons_run_in_the_loop_and_sync_ones_in_threads(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    main = threading.current_thread()
    kopf.daemon("kopfexamples")(calls.accompanying(lambda **_: ("async", threading.current_thread() is main)))

    @kopf.daemon("kopfexamples")
    def sync_fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        calls.append(("sync", threading.current_thread() is main))
        stopped.wait()

    await operator.start_and_call(kex, calls, times=2)
    assert sorted(calls) == [("async", True), ("sync", False)]


async def test_a_pre_scaled_executor_holds_many_sync_daemons(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    def fn(name: str, stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        calls.append(name)
        stopped.wait()

    operator.set("execution.max_workers", 60)
    await operator.start()
    await kex.create_all(f"obj{i}" for i in range(50))
    await calls.wait_length(50)
    assert len(set(calls)) == 50


async def test_several_daemons_of_one_object_run_together_with_its_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """They do not hold the handlers of changes, and the object is handled as usual."""
    for id in ("a", "b"):
        kopf.daemon("kopfexamples", id=id, param=id)(
            calls.accompanying(lambda param, **_: param, lambda param, **_: f"-{param}")
        )

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    assert sorted(calls) == ["a", "b", "create", "update"]
    await kex.delete_and_wait()
    assert sorted(calls.items[4:]) == ["-a", "-b"]


@pytest.mark.fastforward
async def test_the_initial_delay_postpones_the_start(operator: Operator, kex: Objects, calls: Calls) -> None:
    delays: dict[str, Any] = {
        "int": 30,
        "float": 7200.0,
        "callable": lambda **_: 30,
        "callable-of-kwargs": lambda spec, **_: spec["delay"],
    }
    for id, delay in delays.items():
        kopf.daemon("kopfexamples", id=id, param=id, initial_delay=delay)(
            calls.accompanying(lambda param, **_: (param, asyncio.get_running_loop().time()))
        )
    expected = {"int": 30, "float": 7200, "callable": 30, "callable-of-kwargs": 45}
    await operator.start()
    created = asyncio.get_running_loop().time()
    await kex.create(spec={"delay": 45})
    await calls.wait_length(4)
    assert {id: time - created for id, time in calls} == pytest.approx(expected, abs=2)
    restarted = asyncio.get_running_loop().time()
    await operator.restart()
    await calls.wait_length(8)
    assert {id: time - restarted for id, time in calls.items[4:]} == pytest.approx(expected, abs=2)


@pytest.mark.fastforward
async def test_deletion_during_the_initial_delay(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The daemon is never called, and the object does not wait for it."""
    kopf.daemon("kopfexamples", initial_delay=3600)(calls.noting("called"))
    await operator.start_and_create(kex)
    await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
    await asyncio.sleep(10)
    assert await get_duration(kex.delete_and_wait()) < 10
    await asyncio.sleep(7200)
    assert calls == []


async def test_a_failing_callable_of_the_initial_delay_does_not_lose_the_daemon(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    def get_delay(**_: Any) -> float:
        calls.append("asked")
        if len(calls) == 1:
            raise Exception("something is wrong for once")
        return 0

    kopf.daemon("kopfexamples", initial_delay=get_delay)(calls.accompanying("called"))
    logs.expected.append("something is wrong for once")
    operator.set("queueing.error_delays", 0.01)
    await operator.start_and_create(kex)
    await calls.wait(lambda items: "called" in items)
    await kex.delete_and_wait()
    assert calls == ["asked", "asked", "called"]


async def test_kwargs_are_live_views(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The parts that did not exist when the daemon has started, are seen as well when they appear."""
    read: dict[str, Any] = {
        "spec": lambda kwargs: kwargs["spec"].get("live"),
        "status": lambda kwargs: kwargs["status"].get("live"),
        "labels": lambda kwargs: kwargs["labels"].get("live"),
        "annotations": lambda kwargs: kwargs["annotations"].get("live"),
        "meta": lambda kwargs: kwargs["meta"].labels.get("live"),
        "body": lambda kwargs: kwargs["body"].get("status", {}).get("live"),
    }
    for stanza in read:

        @kopf.daemon("kopfexamples", id=stanza, param=stanza)
        async def fn(param: str, stopped: kopf.AsyncDaemonStopperChecker, **kwargs: Any) -> None:
            previous: object = ()
            while not stopped:
                if (value := read[param](kwargs)) != previous:
                    calls.append((param, value))
                    previous = value
                await stopped.wait(0.001)

    await operator.start_and_call(kex, calls, spec={}, times=len(read))
    for n, value in enumerate(["1", "2", None], start=2):
        patch = {"live": value}
        await kex.merge({"spec": patch, "status": patch, "metadata": {"labels": patch, "annotations": patch}})
        await calls.wait_length(n * len(read))
    for stanza in read:
        assert [value for whose, value in calls if whose == stanza] == [None, "1", "2", None]


async def test_live_views_from_threads(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    def fn(stopped: kopf.SyncDaemonStopperChecker, spec: kopf.Spec, **_: Any) -> None:
        while not stopped:
            if not len(calls) or calls[-1] != spec["field"]:
                calls.append(spec["field"])
            stopped.wait(0.001)

    await operator.start_and_call(kex, calls)
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(2)
    assert calls == ["value", "new"]


R = kopf.DaemonStoppingReason


@pytest.mark.fastforward
async def test_async_wait_takes_as_long_as_requested(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        for timeout in (0, 10, 3600.5):
            started = asyncio.get_running_loop().time()
            assert await stopped.wait(timeout) is False
            calls.append(asyncio.get_running_loop().time() - started)

    await operator.start_and_call(kex, calls, times=3)
    assert calls.items == pytest.approx([0, 10, 3600.5], abs=0.5)


@pytest.mark.fastforward
async def test_async_wait_ends_at_once_when_it_is_time_to_exit(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("waiting")
        calls.append(await stopped.wait(1000000))
        calls.append(await stopped.wait(1000000))
        calls.append(await stopped.wait())

    await operator.start_and_call(kex, calls)
    await asyncio.sleep(100)
    started = asyncio.get_running_loop().time()
    await kex.delete_and_wait()
    assert calls == ["waiting", True, True, True]
    assert asyncio.get_running_loop().time() - started < 10


async def test_sync_wait(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    def fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        started = time.monotonic()
        calls.append(stopped.wait(0.02))
        calls.append(time.monotonic() - started >= 0.02)
        calls.append(stopped.wait(1000))
        calls.append(stopped.wait())
        calls.append(bool(stopped))

    await operator.start_and_call(kex, calls, times=2)
    await kex.delete_and_wait()
    assert calls == [False, True, True, True, True]


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("reason", [R.RESOURCE_DELETED, R.FILTERS_MISMATCH, R.OPERATOR_EXITING])
async def test_reasons(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    reason: kopf.DaemonStoppingReason,
    kind: str,
) -> None:
    def describe(stopped: Any, **_: Any) -> Any:
        return type(stopped), bool(stopped), stopped.is_set(), stopped.reason

    def sync_fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
        calls.append(describe(stopped))
        stopped.wait()
        calls.append(describe(stopped))

    kopf.daemon("kopfexamples", labels={"match": "yes"})(
        calls.accompanying(describe, describe) if kind == "async" else sync_fn
    )
    await operator.start_and_call(kex, calls, labels={"match": "yes"})
    match reason:
        case R.RESOURCE_DELETED:
            await kex.delete()
        case R.FILTERS_MISMATCH:
            await kex.merge({"metadata": {"labels": {"match": "no"}}})
        case R.OPERATOR_EXITING:
            await operator.stop()
    await calls.wait_length(2)
    others = (R.RESOURCE_DELETED | R.FILTERS_MISMATCH | R.OPERATOR_EXITING) & ~reason
    cls = kopf.AsyncDaemonStopperChecker if kind == "async" else kopf.SyncDaemonStopperChecker
    assert issubclass(cls, kopf.DaemonStopped)
    assert calls[0] == (cls, False, False, None)
    assert calls[1][:3] == (cls, True, True)
    assert reason in calls[1][3]
    assert not calls[1][3] & others


@pytest.mark.fastforward
async def test_several_reasons_are_combined(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples", labels={"match": "yes"}, cancellation_backoff=1000, cancellation_timeout=1000)
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("started")
        await stopped.wait()
        calls.append("stopping")
        try:
            await asyncio.sleep(1000000)
        finally:
            calls.append(stopped.reason)

    await operator.start_and_call(kex, calls, labels={"match": "yes"})
    await kex.merge({"metadata": {"labels": {"match": "no"}}})
    await calls.wait_length(2)
    await kex.delete_and_wait()
    expected = R.FILTERS_MISMATCH | R.RESOURCE_DELETED | R.DAEMON_SIGNALLED | R.DAEMON_CANCELLED
    assert calls[-1] == expected


@pytest.mark.fastforward
async def test_only_the_stages_that_exist_are_added_to_the_reason(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """With no stages, ``stopped.reason == RESOURCE_DELETED`` holds all the time."""
    stages: list[tuple[dict[str, Any], R]] = [
        ({}, R(0)),
        ({"cancellation_polling": 0.2}, R(0)),
        ({"cancellation_backoff": 1}, R.DAEMON_SIGNALLED),
        ({"cancellation_timeout": 1000}, R.DAEMON_CANCELLED),
        ({"cancellation_backoff": 1, "cancellation_timeout": 1000}, R.DAEMON_SIGNALLED | R.DAEMON_CANCELLED),
    ]
    for number, (options, _flags) in enumerate(stages):

        @kopf.daemon("kopfexamples", id=f"fn{number}", param=number, **options)
        async def fn(param: int, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
            calls.append("started")
            await stopped.wait()
            try:
                await asyncio.sleep(10)
            finally:
                calls.append((param, stopped.reason))

    await operator.start_and_call(kex, calls, times=len(stages))
    await kex.delete_and_wait()
    assert sorted(calls.items[len(stages) :]) == [
        (number, R.RESOURCE_DELETED | flags) for number, (_, flags) in enumerate(stages)
    ]


def test_the_values_of_reasons() -> None:
    """They are documented as numbers."""
    assert {reason.name: reason.value for reason in R} == {
        "DONE": 1,
        "FILTERS_MISMATCH": 2,
        "RESOURCE_DELETED": 4,
        "OPERATOR_PAUSING": 8,
        "OPERATOR_EXITING": 16,
        "DAEMON_SIGNALLED": 32,
        "DAEMON_CANCELLED": 64,
        "DAEMON_ABANDONED": 128,
        "RESOURCE_HANDED_OVER": 256,
    }
