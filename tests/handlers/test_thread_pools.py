from __future__ import annotations

import concurrent.futures
import functools
import threading

import pytest

from kopf._handlers.thread_pools import ThreadPools
from kopf._settings.settings import ExecutionSettings
from kopf._settings.threads import HandlerThreads


def get_name() -> str:
    return threading.current_thread().name.rpartition("_")[0]


def count_threads() -> int:
    return sum(thread.name.startswith("kopf-") for thread in threading.enumerate())


def test_own_executors_are_released_and_ready_for_the_next_run() -> None:
    settings = ExecutionSettings()
    settings.max_workers = 5
    executor = settings.executor
    ThreadPools(settings).release()
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(print)
    assert isinstance(settings.executor, HandlerThreads)
    assert settings.executor is not executor
    assert settings.max_workers == settings.executor.max_workers == 5


def test_executors_of_applications_are_not_touched() -> None:
    with concurrent.futures.ThreadPoolExecutor() as executor:
        settings = ExecutionSettings(executor=executor)
        ThreadPools(settings).release()
        assert settings.executor is executor
        assert executor.submit(lambda: 123).result() == 123


def test_own_executors_are_released_even_if_they_are_replaced_later() -> None:
    settings = ExecutionSettings()
    own = settings.executor
    pools = ThreadPools(settings)
    with concurrent.futures.ThreadPoolExecutor() as executor:
        settings.executor = executor
        pools.release()
        assert settings.executor is executor
    with pytest.raises(RuntimeError, match="shutdown"):
        own.submit(print)


@pytest.mark.parametrize(("is_long", "name"), [(False, "kopf-handler"), (True, "kopf-daemon")])
async def test_there_are_no_threads_until_they_are_used(is_long: bool, name: str) -> None:
    pools = ThreadPools(ExecutionSettings())
    before = count_threads()
    try:
        assert count_threads() == before
        assert await pools.call("fn", get_name, is_long=is_long) == name
        assert count_threads() == before + 1
    finally:
        pools.release()


@pytest.mark.parametrize("is_long", [False, True])
async def test_replaced_executors_are_used_for_all_calls(is_long: bool) -> None:
    settings = ExecutionSettings()
    pools = ThreadPools(settings)
    with concurrent.futures.ThreadPoolExecutor(thread_name_prefix="mine") as executor:
        settings.executor = executor
        assert await pools.call("fn", get_name, is_long=is_long) == "mine"


async def test_the_number_of_workers_is_not_silently_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with concurrent.futures.ThreadPoolExecutor() as executor:
        settings = ExecutionSettings(executor=executor)
        settings.max_workers = 5
        pools = ThreadPools(settings)
        for _ in range(3):
            assert await pools.call("fn", functools.partial(int, "5"), is_long=False) == 5
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("settings.execution.max_workers has no effect on the replaced")
