from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from kopf._handlers.executor import invoke
from kopf._handlers.thread_pools import ThreadPools
from kopf._settings.settings import ExecutionSettings
from tests.handlers.builders import make_handler
from tests.patience import PATIENCE

variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.fixture
def threads() -> Iterator[ThreadPools]:
    with concurrent.futures.ThreadPoolExecutor(thread_name_prefix="pool") as executor:
        yield ThreadPools(ExecutionSettings(executor=executor))


def describe(x: int, **kwargs: Any) -> dict[str, Any]:
    return {"x": x, "kwargs": kwargs, "thread": threading.current_thread().name, "variable": variable.get()}


def sync_fn(x: int, **kwargs: Any) -> dict[str, Any]:
    return describe(x, **kwargs)


async def async_fn(x: int, **kwargs: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return describe(x, **kwargs)


class SyncInstance:
    def __call__(self, x: int, **kwargs: Any) -> dict[str, Any]:
        return describe(x, **kwargs)

    async def async_method(self, x: int, **kwargs: Any) -> dict[str, Any]:
        return describe(x, **kwargs)


class AsyncInstance:
    async def __call__(self, x: int, **kwargs: Any) -> dict[str, Any]:
        return describe(x, **kwargs)

    def sync_method(self, x: int, **kwargs: Any) -> dict[str, Any]:
        return describe(x, **kwargs)


@pytest.mark.parametrize(
    ("fn", "thread"),
    [
        (sync_fn, "pool_0"),
        (async_fn, "MainThread"),
        (functools.partial(sync_fn), "pool_0"),
        (functools.partial(async_fn), "MainThread"),
        (SyncInstance(), "pool_0"),
        (AsyncInstance(), "MainThread"),
        (SyncInstance().async_method, "MainThread"),
        (AsyncInstance().sync_method, "pool_0"),
        (lambda **kwargs: async_fn(**kwargs), "MainThread"),
        (functools.partial(AsyncInstance()), "MainThread"),
    ],
)
async def test_functions_run_in_threads_and_coroutines_in_the_loop(threads: ThreadPools, fn: Any, thread: str) -> None:
    token = variable.set("value")
    try:
        result = await invoke(make_handler(fn=fn), {"x": 1, "y": 2}, threads=threads)
    finally:
        variable.reset(token)
    assert result == {"x": 1, "kwargs": {"y": 2}, "thread": thread, "variable": "value"}


async def test_contexts_of_threads_are_isolated(threads: ThreadPools) -> None:
    await invoke(make_handler(fn=lambda: variable.set("inner")), {}, threads=threads)
    assert variable.get() == "unset"


ERRORS = [
    (ZeroDivisionError("boom"), ZeroDivisionError, "boom"),
    *(
        (error, RuntimeError, f"raised {type(error).__name__}" + (": boom" if error.args else ""))
        for error in (StopIteration(), asyncio.CancelledError("boom"), concurrent.futures.CancelledError("boom"))
    ),
]
"""Those that mean something else in event loops, become other ones; the last one means nothing in coroutines."""


@pytest.mark.parametrize(
    ("is_async", "error", "expected", "text"),
    [
        *((False, *row) for row in ERRORS),
        *((True, *row) for row in ERRORS[:-1]),
    ],
)
async def test_exceptions(
    threads: ThreadPools, is_async: bool, error: BaseException, expected: type[Exception], text: str
) -> None:
    async def fail_in_the_loop() -> None:
        raise error

    def fail_in_a_thread() -> None:
        raise error

    handler = make_handler(fn=fail_in_the_loop if is_async else fail_in_a_thread)
    what = "" if expected is type(error) else "coroutine " if is_async else "function "
    with pytest.raises(expected, match=f"^{what}{text}$") as e:
        await asyncio.wait_for(invoke(handler, {}, threads=threads), timeout=PATIENCE)
    assert e.value is error or e.value.__cause__ is error


async def test_cancellations_of_the_handler_itself_go_through(threads: ThreadPools) -> None:
    async def sleep() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(100)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(invoke(make_handler(fn=sleep), {}, threads=threads))


async def test_functions_that_never_got_a_thread_are_cancelled() -> None:
    started, released = threading.Event(), threading.Event()

    def occupy() -> None:
        started.set()
        released.wait()

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
        threads = ThreadPools(ExecutionSettings(executor=executor))
        first = asyncio.create_task(invoke(make_handler(fn=occupy), {}, threads=threads))
        await asyncio.to_thread(started.wait)
        second = asyncio.create_task(invoke(make_handler(fn=dict), {}, threads=threads))
        await asyncio.sleep(0)
        executor.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(asyncio.CancelledError):
            await second
        released.set()
        await first
