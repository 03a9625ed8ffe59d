from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kopf._handlers.thread_pools import LoopThreads, ThreadJob, ThreadPools
from kopf._settings.settings import ExecutionSettings
from kopf._settings.threads import HandlerThreads
from tests.patience import PATIENCE


@pytest.fixture
def threads() -> Iterator[ThreadPools]:
    settings = ExecutionSettings()
    settings.max_workers = 1
    threads = ThreadPools(settings)
    yield threads
    threads.release()


async def occupy(threads: ThreadPools, release: threading.Event) -> asyncio.Task[Any]:
    started = threading.Event()

    def wait() -> str:
        started.set()
        release.wait(PATIENCE)
        return "done"

    task = asyncio.create_task(threads.call("fn", wait, is_long=False))
    await asyncio.to_thread(started.wait, 30)
    return task


async def test_results_go_to_those_who_wait_for_them(threads: ThreadPools) -> None:
    calls = [threads.call("fn", functools.partial(int, number), is_long=False) for number in range(100)]
    assert await asyncio.gather(*calls) == [*range(100)]


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt("boom"), asyncio.CancelledError()], ids=repr)
async def test_errors_go_through(threads: ThreadPools, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await threads.call("fn", fail, is_long=False)


async def test_what_is_cancelled_before_it_gets_a_thread_is_never_called(
    threads: ThreadPools,
    release: threading.Event,
) -> None:
    called: list[int] = []
    first = await occupy(threads, release)
    second = asyncio.create_task(threads.call("fn", lambda: called.append(2), is_long=False))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    assert await first == "done"
    await threads.call("fn", lambda: called.append(3), is_long=False)
    assert called == [3]


async def test_what_is_cancelled_while_it_runs_is_left_alone(threads: ThreadPools, release: threading.Event) -> None:
    first = await occupy(threads, release)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert await threads.call("fn", lambda: "next", is_long=False) == "next"


async def test_those_who_never_get_a_thread_are_cancelled(threads: ThreadPools, release: threading.Event) -> None:
    first = await occupy(threads, release)
    second = asyncio.create_task(threads.call("fn", dict, is_long=False))
    await asyncio.sleep(0)
    threads.release()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    assert await first == "done"


def test_results_for_a_closed_loop_are_dropped() -> None:
    loop = asyncio.new_event_loop()
    job = ThreadJob(lambda: "done", loop.create_future(), LoopThreads(HandlerThreads(), loop).send)
    loop.close()
    job.run()
    assert not job.future.done()
