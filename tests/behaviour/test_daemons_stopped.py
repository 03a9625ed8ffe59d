"""The ``stopped`` kwarg of daemons: how they learn that it is time to exit, and why."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator

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
