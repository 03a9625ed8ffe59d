from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kopf._settings import threads
from kopf._settings.threads import HandlerThreads
from tests.patience import PATIENCE


class Gate:
    """A function that runs until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._open = threading.Event()

    def __call__(self) -> str:
        self.entered.release()
        self._open.wait(PATIENCE)
        return threading.current_thread().name

    def wait_for(self, number: int) -> None:
        for _ in range(number):
            assert self.entered.acquire(timeout=PATIENCE)

    def release(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.release()


@pytest.fixture
def pool(gate: Gate) -> Iterator[HandlerThreads]:
    pool = HandlerThreads()
    yield pool
    gate.release()
    pool.shutdown()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "It never came so."
        time.sleep(0.001)


def get_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kopf-handler_")]


def test_results_and_errors(pool: HandlerThreads) -> None:
    def fn(a: int, *, b: int) -> tuple[int, int]:
        return a, b

    assert pool.submit(fn, 1, b=2).result(PATIENCE) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(PATIENCE)


def test_threads_are_made_on_demand_and_reused(pool: HandlerThreads) -> None:
    assert get_threads() == []
    for _ in range(10):
        pool.submit(int).result(PATIENCE)
        wait_until(lambda: pool._idle == 1)
    assert get_threads() == ["kopf-handler_0"]


def test_no_more_threads_than_permitted(pool: HandlerThreads, gate: Gate) -> None:
    pool.max_workers = 3
    futures = [pool.submit(gate) for _ in range(10)]
    gate.wait_for(3)
    for _ in range(10):
        pool.expand()
    assert len(get_threads()) == 3
    gate.release()
    assert {future.result(PATIENCE) for future in futures} <= {f"kopf-handler_{i}" for i in range(3)}


def test_the_limit_can_be_raised_while_it_works(pool: HandlerThreads, gate: Gate) -> None:
    pool.max_workers = 1
    [pool.submit(gate) for _ in range(3)]
    gate.wait_for(1)
    pool.max_workers = 2
    pool.expand()
    gate.wait_for(1)
    assert len(get_threads()) == 2


def test_it_grows_only_for_those_who_wait(pool: HandlerThreads, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_get_default_size", lambda: 2)
    pool.expand()
    assert get_threads() == []
    [pool.submit(gate) for _ in range(3)]
    gate.wait_for(2)
    assert len(get_threads()) == 2
    pool.expand()
    gate.wait_for(1)
    pool.expand()
    assert len(get_threads()) == 3


def test_jobs_wait_if_the_system_gives_no_more_threads(
    pool: HandlerThreads,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = pool.submit(gate)
    gate.wait_for(1)

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    waiting, last = pool.submit(int), pool.submit(str)
    pool.expand()
    gate.release()
    assert (running.result(PATIENCE), waiting.result(PATIENCE), last.result(PATIENCE)) == ("kopf-handler_0", 0, "")


def test_no_threads_at_all_are_an_error(pool: HandlerThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(int)
    assert pool.submit(str).result(PATIENCE) == ""


def test_idle_threads_end_and_come_back(pool: HandlerThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_TIMEOUT", 0.01)
    pool.submit(int).result(PATIENCE)
    wait_until(lambda: not get_threads())
    assert pool.submit(str).result(PATIENCE) == ""


def test_a_shutdown_ends_the_threads_and_refuses_new_jobs(pool: HandlerThreads) -> None:
    pool.submit(int).result(PATIENCE)
    pool.shutdown()
    assert get_threads() == []
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(int)


@pytest.mark.parametrize("cancel_futures", [True, False])
def test_a_shutdown_with_jobs(pool: HandlerThreads, gate: Gate, cancel_futures: bool) -> None:
    pool.max_workers = 1
    running, waiting = pool.submit(gate), pool.submit(int)
    gate.wait_for(1)
    pool.shutdown(wait=False, cancel_futures=cancel_futures)
    gate.release()
    assert running.result(PATIENCE) == "kopf-handler_0"
    if cancel_futures:
        assert waiting.cancelled()
    else:
        assert waiting.result(PATIENCE) == 0


def test_cancelled_jobs_are_skipped(pool: HandlerThreads, gate: Gate) -> None:
    pool.max_workers = 1
    pool.submit(gate)
    gate.wait_for(1)
    cancelled, next_one = pool.submit(int), pool.submit(str)
    assert cancelled.cancel()
    gate.release()
    assert next_one.result(PATIENCE) == ""


def test_many_jobs_of_many_threads(pool: HandlerThreads) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as others:
        batches = list(others.map(lambda i: [pool.submit(int, str(i * 100 + j)) for j in range(100)], range(10)))
    assert sorted(future.result(PATIENCE) for batch in batches for future in batch) == list(range(1000))


def test_hung_functions_do_not_hold_the_exit_of_the_process() -> None:
    code = (
        "import threading; from kopf._settings.threads import HandlerThreads; pool = HandlerThreads(); "
        "started = threading.Event(); pool.submit(lambda: (started.set(), threading.Event().wait())); "
        "started.wait(); print('exits')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert result.stdout == "exits\n"


def test_idle_threads_are_counted_exactly(pool: HandlerThreads) -> None:
    """A job that counts on a thread which has just taken another job would wait for it, here forever."""
    pool.max_workers = 3
    for _ in range(300):
        barrier = threading.Barrier(3)
        for future in [pool.submit(barrier.wait, 30) for _ in range(3)]:
            future.result(PATIENCE)
    assert len(get_threads()) == 3
