"""The threads of synchronous handlers: how many there are, and what if they are all busy."""

from __future__ import annotations

import concurrent.futures
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from kopf._handlers import thread_usage
from kopf._settings import threads
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Whatever hangs in a test is let go when the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def test_sync_daemons_do_not_take_the_threads_of_handlers(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples", id="daemon_fn")
    def daemon_fn(stopped: kopf.DaemonStopped, **_: Any) -> None:
        assert isinstance(stopped, kopf.SyncDaemonStopperChecker)
        calls.append(threading.current_thread().name.rpartition("_")[0])
        stopped.wait()

    kopf.on.update("kopfexamples")(lambda **_: calls.append("updated"))
    operator.set("execution.max_workers", 1)
    await operator.start()
    names = [f"obj{i}" for i in range(5)]
    await kex.create_all(names)
    await calls.wait_length(5)
    for name in names:
        await kex.wait_handled(name)
        await kex.change_and_wait(name, field="new")
    await operator.stop()
    assert calls == ["kopf-daemon"] * 5 + ["updated"] * 5


@pytest.mark.parametrize("is_early", [True, False], ids=["from the beginning", "in a startup handler"])
async def test_executors_of_users_are_used_for_everything_and_left_alive(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    is_early: bool,
) -> None:
    """What has begun in the previous executor, ends there; so does the startup handler that replaces it."""

    def note(what: str) -> None:
        calls.append((what, threading.current_thread().name.startswith("my-own")))

    with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="my-own") as executor:

        def use(settings: kopf.OperatorSettings, **_: Any) -> None:
            note("startup")
            settings.execution.executor = executor

        @kopf.daemon("kopfexamples")
        def daemon_fn(stopped: kopf.SyncDaemonStopperChecker, **_: Any) -> None:
            note("daemon")
            stopped.wait()

        kopf.on.startup()(use)
        kopf.on.create("kopfexamples")(lambda **_: note("create"))
        if is_early:
            operator.configure = lambda settings: setattr(settings.execution, "executor", executor)
        await operator.start_and_handle(kex)
        await calls.wait_length(3)
        await operator.stop()
        assert executor.submit(lambda: "alive").result() == "alive"
    assert sorted(calls) == [("create", True), ("daemon", True), ("startup", is_early)]


async def test_the_default_threads_are_added_when_the_handlers_have_to_wait(
    operator: Operator,
    kex: Objects,
    release: threading.Event,
    calls: Calls,
) -> None:
    """More of them than objects are handled at once: those that hold threads do not count."""
    barrier = threading.Barrier(80)

    @kopf.on.create("kopfexamples")
    def create_fn(**_: Any) -> None:
        barrier.wait(PATIENCE)  # only possible if all of them run at once
        calls.append("passed")

    await operator.start()
    await kex.create_all(f"obj{i}" for i in range(80))
    await calls.wait_length(80)


async def test_saturation_is_warned_of_with_the_names_of_handlers(
    operator: Operator,
    kex: Objects,
    release: threading.Event,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @kopf.on.create("kopfexamples", id="slow_fn")
    def slow_fn(**_: Any) -> None:
        release.wait(PATIENCE)

    kopf.on.event("kopfexamples", id="quick_fn")(lambda **_: None)

    @kopf.daemon("kopfexamples", id="daemon_fn")
    def daemon_fn(stopped: kopf.DaemonStopped, **_: Any) -> None:
        assert isinstance(stopped, kopf.SyncDaemonStopperChecker)
        stopped.wait()

    operator.set("execution.max_workers", 2)
    monkeypatch.setattr(thread_usage, "SATURATION_DELAY", 0.1)
    await operator.start()
    for name in ("obj1", "obj2"):
        await kex.create(name)
        await logs.wait("Handler 'slow_fn' is invoked.", times=1 if name == "obj1" else 2)
    await kex.create("obj3")
    record = await logs.wait("Handlers wait for threads, because all 2 are busy.*")
    assert record.levelname == "WARNING"
    assert "Waiting: 'quick_fn' (1" in record.getMessage()
    assert "Running: 'slow_fn' (2" in record.getMessage()
    assert "daemon_fn" not in record.getMessage()
    release.set()
    await kex.wait_all_handled(("obj1", "obj2", "obj3"))


async def test_many_hung_handlers_are_never_silent(
    operator: Operator,
    kex: Objects,
    release: threading.Event,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the default settings, and with no more objects than the threads & the workers can take."""

    @kopf.on.create("kopfexamples", id="hung_fn")
    def hung_fn(**_: Any) -> None:
        release.wait(PATIENCE)

    monkeypatch.setattr(thread_usage, "SATURATION_DELAY", 0.5)
    await operator.start()
    await kex.create_all(f"obj{i}" for i in range(threads.ELASTIC_LIMIT + 5))
    record = await logs.wait("Handlers wait for threads, because all 100 are busy.*")
    assert re.search(r"Waiting: 'hung_fn' \(\d, up to \d+ s\). Running: 'hung_fn' \(100, up", record.getMessage())
    release.set()
    await kex.wait_all_handled(f"obj{i}" for i in range(threads.ELASTIC_LIMIT + 5))
