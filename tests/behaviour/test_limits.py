"""Limits of handlers: the overall time, the number of attempts, and the pauses between them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, now

pytestmark = pytest.mark.fastforward


async def test_backoff_is_the_pause_after_arbitrary_errors(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", backoff=30, id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append(round(now() - started))
        if retry == 0:
            raise ValueError("boom")
        if retry == 1:
            raise kopf.TemporaryError("not yet", delay=100)

    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert calls == [0, 30, 130]
    assert logs.find("Handler 'fn' failed with an exception and will try again in 30 seconds: ValueError: boom")


async def test_the_default_backoff_is_in_the_settings(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting(lambda **_: now(), error=ValueError("boom"), times=2))
    operator.set("execution.default_backoff", 7)
    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert [time - started for time in calls] == pytest.approx([0, 7, 14], abs=1)


async def test_exponential_delays_go_on_after_a_restart(operator: Operator, kex: Objects, calls: Calls) -> None:
    error = ValueError("boom")
    backoff = kopf.exponential(initial=10, factor=3, maximum=200, jitter=0)
    kopf.on.create("kopfexamples", id="fn", backoff=backoff)(calls.noting(lambda **_: now(), error=error, times=4))
    await operator.start()
    started = now()
    await kex.create()
    await calls.wait_length(2)
    await operator.restart()
    await calls.wait_length(5)
    assert [time - started for time in calls] == pytest.approx([0, 10, 40, 130, 330], abs=15)  # a restart takes time


@pytest.mark.parametrize("kind", ["create", "timer"])
async def test_delays_are_spread_over_objects_and_handlers(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    kind: str,
) -> None:
    async def fn(**_: Any) -> None:
        raise ValueError("boom")

    operator.set("execution.default_backoff", kopf.exponential(initial=100, jitter=0.5))
    for name in ["fn1", "fn2"]:
        if kind == "timer":
            kopf.timer("kopfexamples", id=name, interval=5)(fn)
        else:
            kopf.on.create("kopfexamples", id=name)(fn)
    await operator.start()
    await kex.create_all(["obj1", "obj2"])
    await logs.wait(".*will try again in .*", times=4)
    failures = [record.getMessage() for record in logs.find(".*will try again in .*")]
    found = {match[1] for text in failures if (match := re.search(r"try again in ([\d.]+) seconds", text))}
    assert len(found) == 4
    assert all(50 <= float(delay) <= 100 for delay in found)


@pytest.mark.parametrize("error", [ValueError("boom"), kopf.TemporaryError("boom", delay=60)], ids=["arb", "temp"])
async def test_retries_limit_the_number_of_attempts(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    error: Exception,
) -> None:
    @kopf.on.create("kopfexamples", retries=3, id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append(now() - started)
        assert retry == len(calls) - 1
        raise error

    await operator.start()
    started = now()
    await kex.create_and_wait()
    # After the last attempt, it fails at once, as there is nothing to sleep for.
    assert calls.items == pytest.approx([0, 60, 120], abs=1)
    assert now() - started == pytest.approx(120, abs=2)
    assert logs.find("Creation is processed: 0 succeeded; 1 failed.")


async def test_timeout_limits_the_time_of_all_attempts(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    started: float
    kopf.on.create("kopfexamples", timeout=200, id="fn")(
        calls.noting(lambda retry, **_: (retry, round(now() - started)), error=kopf.TemporaryError("not yet", delay=60))
    )
    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert calls == [(0, 0), (1, 60), (2, 120), (3, 180)]
    assert now() - started < 201
    assert logs.find("Creation is processed: 0 succeeded; 1 failed.")


async def test_timeout_interrupts_coroutines(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    kopf.on.create("kopfexamples", timeout=100, id="fn")(calls.hanging(lambda **_: now(), lambda **_: now()))
    await operator.start_and_handle(kex)
    assert calls[1] - calls[0] == pytest.approx(100, abs=0.5)
    assert logs.find("Handler 'fn' failed permanently: .*timed out.*")


async def test_timeout_errors_of_the_handler_itself_are_arbitrary_errors(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", timeout=1000, id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append(round(now() - started))
        if retry < 2:
            await asyncio.wait_for(asyncio.Event().wait(), timeout=5)

    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert calls == [0, 65, 130]


async def test_retry_started_and_runtime_tell_of_all_attempts(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn")(
        calls.noting(
            lambda retry, started, runtime, **_: (retry, started, round(runtime.total_seconds())),
            error=kopf.TemporaryError("not yet", delay=100),
            times=3,
        )
    )

    await operator.start_and_handle(kex)
    first = calls[0][1]
    assert calls == [(0, first, 0), (1, first, 100), (2, first, 200), (3, first, 300)]


async def test_the_attempts_are_counted_across_restarts(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", retries=3, id="fn")(
        calls.noting(
            lambda retry, started, runtime, **_: (retry, started, runtime),
            error=kopf.TemporaryError("not yet", delay=100),
        )
    )

    await kex.create()
    for attempt in range(3):
        await operator.start()
        await calls.wait_length(attempt + 1)
        await operator.stop()
    await operator.start()
    await kex.wait_handled()
    assert [retry for retry, _, _ in calls] == [0, 1, 2]
    assert len({started for _, started, _ in calls}) == 1
    runtimes = [runtime for _, _, runtime in calls]
    assert runtimes == sorted(runtimes)
