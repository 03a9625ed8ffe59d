"""Attempts behind the fence: nothing begins there, whatever was on its way to it."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kopf._client.fencing import Fence, FencedError
from kopf._controller.background.stop_signals import AsyncDaemonStopperChecker, DaemonStopper, DaemonStoppingReason
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._settings.settings import ExecutionSettings
from kopf._values.ids import HandlerId
from tests.handlers.builders import make_changing_cause, make_handler

FIRST = Attempt.first(datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC))


@pytest.fixture
async def fence() -> Fence:
    fence = Fence()
    fence.open(fence.now() + 60)
    return fence


@pytest.fixture
async def executor(fence: Fence) -> AsyncIterator[HandlerExecutor]:
    settings = ExecutionSettings()
    settings.max_workers = 1
    executor = HandlerExecutor(settings)
    executor.put_behind(fence)
    yield executor
    executor.threads.release()


@pytest.fixture
def busy() -> Iterator[Blocker]:
    busy = Blocker()
    yield busy
    busy.released.set()


class Blocker:
    """A function that occupies its thread until it is released."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, **_: Any) -> None:
        self.begun.set()
        self.released.wait(60)


def call(executor: HandlerExecutor, fence: Fence, handler: Handler) -> asyncio.Task[Outcome]:
    context = contextvars.copy_context()
    context.run(fence.enter)
    cause = make_changing_cause({"metadata": {"uid": "uid1"}})
    return asyncio.create_task(executor.execute(handler, cause, FIRST), context=context)


async def test_nothing_is_called(executor: HandlerExecutor, fence: Fence) -> None:
    called: list[str] = []

    async def fn(**_: Any) -> None:
        called.append("called")

    fence.shut()
    with pytest.raises(asyncio.CancelledError):
        await call(executor, fence, make_handler(fn=fn))
    assert not called


async def test_indices_are_of_all_replicas(executor: HandlerExecutor, fence: Fence) -> None:
    async def fn(**_: Any) -> int:
        return 123

    fence.shut()
    handler = IndexingHandler(id=HandlerId("fn"), fn=fn, selector=None)
    assert (await call(executor, fence, handler)).result == 123


async def test_a_refused_change_is_the_end_of_the_handler(executor: HandlerExecutor, fence: Fence) -> None:
    """It is no error of the handler, that would be tried again."""

    async def fn(**_: Any) -> None:
        fence.shut()
        try:
            fence.check()  # as the client does
        except Exception:
            pytest.fail("It was taken for an error.")

    with pytest.raises(FencedError):
        await call(executor, fence, make_handler(fn=fn))


async def test_threads_that_are_free_too_late(executor: HandlerExecutor, fence: Fence, busy: Blocker) -> None:
    called: list[str] = []
    first = call(executor, fence, make_handler("first", busy))
    await asyncio.to_thread(busy.begun.wait, 60)
    second = call(executor, fence, make_handler("second", lambda **_: called.append("called")))
    await asyncio.sleep(0)
    fence.shut()
    busy.released.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not called


async def test_abandoned_threads_are_known_by_their_objects(
    executor: HandlerExecutor, fence: Fence, busy: Blocker
) -> None:
    task = call(executor, fence, make_handler(fn=busy))
    await asyncio.to_thread(busy.begun.wait, 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert executor.list_abandoned() == ["uid1"]
    busy.released.set()
    async with asyncio.timeout(60):
        while executor.list_abandoned():  # nobody tells of that
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_asked", [False, True], ids=["running", "asked to stop"])
async def test_coroutines_make_no_step_when_the_fence_is_shut(
    executor: HandlerExecutor, fence: Fence, is_asked: bool
) -> None:
    """A process that was frozen: everything is due at once, and coroutines are about to make their next steps."""
    stopper, steps = DaemonStopper(), []

    async def fn(**_: Any) -> None:
        steps.append("begun")
        await AsyncDaemonStopperChecker(stopper).wait(0.01)
        steps.append("gone on")

    task = call(executor, fence, make_handler(fn=fn))
    while not steps:
        await asyncio.sleep(0)
    fence.shut()
    if is_asked:
        stopper.set(DaemonStoppingReason.RESOURCE_HANDED_OVER)
    with pytest.raises(FencedError):
        await task
    assert steps == ["begun"]


async def test_coroutines_clean_up_behind_the_fence(executor: HandlerExecutor, fence: Fence) -> None:
    steps = []

    async def fn(**_: Any) -> None:
        try:
            steps.append("begun")
            await asyncio.sleep(0.01)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    task = call(executor, fence, make_handler(fn=fn))
    while not steps:
        await asyncio.sleep(0)
    fence.shut()
    with pytest.raises(FencedError):
        await task
    assert steps == ["begun", "cleaned up"]
