from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import threading
import time
from collections.abc import Iterator

import pytest

from kopf._handlers import thread_usage
from kopf._handlers.thread_usage import ThreadCall, ThreadUsage
from kopf._settings.threads import HandlerThreads
from tests.patience import PATIENCE


@pytest.fixture
def pool(release: threading.Event) -> Iterator[HandlerThreads]:
    pool = HandlerThreads(1)
    yield pool
    release.set()
    pool.shutdown()


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> ThreadUsage:
    monkeypatch.setattr(thread_usage, "EXPANSION_DELAY", 0.01)
    monkeypatch.setattr(thread_usage, "SATURATION_DELAY", 0.05)
    return ThreadUsage()


async def run(
    name: str, event: threading.Event | threading.Barrier, pool: concurrent.futures.Executor, usage: ThreadUsage
) -> None:
    call = ThreadCall(name, lambda: event.wait(PATIENCE), pool, usage)
    try:
        await asyncio.get_running_loop().run_in_executor(pool, call)
    finally:
        call.release()


async def wait_for_message(caplog: pytest.LogCaptureFixture, text: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while not (found := [record.getMessage() for record in caplog.records if text in record.getMessage()]):
        assert time.monotonic() < deadline, f"No {text!r} in {caplog.messages}."
        await asyncio.sleep(0.01)
    return found[0]


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "replaced"])
async def test_both_sides_of_the_saturation_are_named_once(
    pool: HandlerThreads,
    usage: ThreadUsage,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
    is_own: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        executor = pool if is_own else other
        names = ["slow_fn", "fast_fn", "fast_fn", "other_fn"]
        tasks = [asyncio.create_task(run(name, release, executor, usage)) for name in names]
        message = await wait_for_message(caplog, "wait for threads")
        await asyncio.sleep(0.1)  # for the last one, too, which began to wait a moment later
        release.set()
        await asyncio.gather(*tasks)
    waiting, running = message.split("Waiting: ")[1].split(" Running: ")
    assert message.startswith("Handlers wait for threads, because all 1 are busy.")
    assert re.search(r"'fast_fn' \(2, up to \d s\)", waiting)
    assert re.search(r"'other_fn' \(1, up to \d s\)", waiting)
    assert re.match(r"'slow_fn' \(1, up to \d s\)\.", running)
    assert "settings.execution.max_workers" in running
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert [text for text in caplog.messages if text.startswith("Handler 'other_fn' has waited for a thread for ")]
    assert usage._calls == set()


async def test_elastic_pools_grow_instead(
    usage: ThreadUsage,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = HandlerThreads()
    caplog.set_level(logging.DEBUG)
    barrier = threading.Barrier(60)

    await asyncio.gather(*(run("fn", barrier, pool, usage) for _ in range(60)))  # only if all of them run at once
    pool.shutdown()


async def test_abandoned_calls_are_tracked_until_they_really_end(
    pool: HandlerThreads,
    usage: ThreadUsage,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = asyncio.create_task(run("hung_fn", release, pool, usage))
    second = asyncio.create_task(run("never_fn", release, pool, usage))
    while not any(call.started for call in usage._calls):
        await asyncio.sleep(0.001)
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert {call.name for call in usage._calls} == {"hung_fn"}
    third = asyncio.create_task(run("next_fn", release, pool, usage))
    message = await wait_for_message(caplog, "wait for threads")
    assert "Waiting: 'next_fn' (1, up to 0 s). Running: 'hung_fn' (1" in message
    release.set()
    await third
    while usage._calls:
        await asyncio.sleep(0.001)


async def test_long_lists_are_shortened(
    pool: HandlerThreads,
    usage: ThreadUsage,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = [asyncio.create_task(run(f"fn{i}", release, pool, usage)) for i in range(14)]
    message = await wait_for_message(caplog, "wait for threads")
    assert "and 3 more. Running: " in message
    release.set()
    await asyncio.gather(*tasks)
