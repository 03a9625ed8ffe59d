"""Operators inside of other applications: of any event loop & thread, next to each other, and next to other tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

import kopf
from kopf._client.auth.vault import Vault
from kopf.testing import LocalCluster
from tests.conftest import LOOP
from tests.patience import PATIENCE

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "01-minimal"

# In a thread of its own, with its own event loop, as are the operators: all of that is about threads and loops.


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.apply(EXAMPLE / "obj.yaml")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


def make_registry(seen: concurrent.futures.Future[str]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.event("kopfexamples", registry=registry)
    def event_fn(name: str, **_: Any) -> None:
        if not seen.done():
            seen.set_result(name)

    return registry


@contextlib.contextmanager
def running(function: Callable[[], None]) -> Iterator[concurrent.futures.Future[None]]:
    """Run it in a thread; the outcome is to be checked, and it must end in time."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        future = executor.submit(function)
        yield future
        future.result(PATIENCE)


@pytest.mark.parametrize("make_flag", [threading.Event, concurrent.futures.Future])
def test_flags_of_threads(cluster: LocalCluster, make_flag: Callable[[], Any]) -> None:
    ready, stop, seen = make_flag(), make_flag(), concurrent.futures.Future[str]()
    registry = make_registry(seen)

    def embed() -> None:
        asyncio.run(kopf.operator(registry=registry, clusterwide=True, ready_flag=ready, stop_flag=stop))

    with running(embed) as future:
        assert ready.wait(PATIENCE) if isinstance(ready, threading.Event) else ready.result(PATIENCE) is None
        assert seen.result(PATIENCE) == "kopf-example-1"
        assert not future.done()
        stop.set() if isinstance(stop, threading.Event) else stop.set_result(None)


@pytest.mark.parametrize("kind", ["event", "future"])
async def test_flags_of_event_loops(cluster: LocalCluster, kind: str) -> None:
    loop = asyncio.get_running_loop()
    ready: Any = asyncio.Event() if kind == "event" else loop.create_future()
    stop: Any = asyncio.Event() if kind == "event" else loop.create_future()
    registry = make_registry(concurrent.futures.Future())
    task = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, ready_flag=ready, stop_flag=stop))
    await asyncio.wait_for(ready.wait() if kind == "event" else ready, PATIENCE)
    assert not task.done()
    stop.set() if kind == "event" else stop.set_result(None)
    await asyncio.wait_for(task, PATIENCE)


def test_several_operators_in_one_process(cluster: LocalCluster) -> None:
    """Each has its thread, event loop, and registry; none of them gets what is of the others."""
    names: dict[str, set[str]] = {"one": set(), "two": set()}
    stop = threading.Event()
    both = threading.Barrier(3)

    def embed(key: str, label: str) -> None:
        registry = kopf.OperatorRegistry()

        @kopf.on.create("kopfexamples", labels={"for": label}, registry=registry)
        def create_fn(name: str, **_: Any) -> None:
            names[key].add(name)
            both.wait(PATIENCE)

        kopf.run(registry=registry, clusterwide=True, stop_flag=stop)

    for label in ("1", "2"):
        metadata = {"name": f"for-{label}", "namespace": "default", "labels": {"for": label}}
        cluster.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata})
    with running(lambda: embed("one", "1")), running(lambda: embed("two", "2")):
        both.wait(PATIENCE)
        stop.set()
    assert names == {"one": {"for-1"}, "two": {"for-2"}}


def test_several_operators_in_one_event_loop(cluster: LocalCluster) -> None:
    seen = [concurrent.futures.Future[str]() for _ in range(3)]

    async def embed() -> None:
        stop = asyncio.Event()
        operators = [kopf.operator(registry=make_registry(future), clusterwide=True, stop_flag=stop) for future in seen]
        tasks = [asyncio.create_task(operator) for operator in operators]
        for future in seen:
            await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE)
        tasks[0].cancel()  # the other ones do not care
        await asyncio.wait(tasks[:1], timeout=PATIENCE)
        assert [task.done() for task in tasks] == [True, False, False]
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks[1:]), PATIENCE)

    with running(lambda: asyncio.run(embed())):
        pass


def test_loop_of_the_application(cluster: LocalCluster) -> None:
    """It is used and left open; the next operator can run in it."""
    loop = asyncio.new_event_loop()
    try:
        for _ in range(2):
            seen = concurrent.futures.Future[str]()
            kopf.run(loop=loop, registry=make_registry(seen), clusterwide=True, stop_flag=seen)
            assert seen.result(0) == "kopf-example-1"
            assert not loop.is_closed()
            assert not asyncio.all_tasks(loop)
    finally:
        loop.close()


def test_loop_of_uvloop(cluster: LocalCluster) -> None:
    stop, seen = threading.Event(), concurrent.futures.Future[str]()
    loops: list[type] = []
    registry = make_registry(seen)

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_: Any) -> None:
        loops.append(type(asyncio.get_running_loop()))

    loop = uvloop.new_event_loop()
    try:
        with running(lambda: kopf.run(loop=loop, registry=registry, clusterwide=True, stop_flag=stop)):
            seen.result(PATIENCE)
            stop.set()
    finally:
        loop.close()
    with running(lambda: uvloop.run(kopf.operator(registry=registry, clusterwide=True, stop_flag=stop))):
        pass
    # It is installed, but not for applications unless they want so, by the policy, too.
    with running(lambda: kopf.run(registry=registry, clusterwide=True, stop_flag=stop)):
        pass
    assert [issubclass(cls, uvloop.Loop) for cls in loops] == [True, True, LOOP == "uvloop"]


def test_credentials_of_several_operators(cluster: LocalCluster) -> None:
    """The operators that share a vault, log in once; the application can bring the credentials by itself."""
    seen = [concurrent.futures.Future[str]() for _ in range(2)]
    registries = [make_registry(future) for future in seen]
    logins: list[str] = []
    for registry in registries:

        @kopf.on.login(registry=registry)
        async def login_fn(**kwargs: Any) -> kopf.ConnectionInfo | None:
            logins.append("login")
            return kopf.login_with_kubeconfig(**kwargs)

    async def embed() -> None:
        vault, stop = Vault(kopf.OperatorSettings()), asyncio.Event()
        for registry, future in zip(registries, seen, strict=True):
            options: Any = {"registry": registry, "clusterwide": True, "vault": vault, "stop_flag": stop}
            task = asyncio.create_task(kopf.operator(**options))
            await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE)
            stop.set()
            await asyncio.wait_for(task, PATIENCE)
            stop.clear()
        await vault.close()

    with running(lambda: asyncio.run(embed())):
        pass
    assert logins == ["login"]


@pytest.mark.parametrize("options", [{}, {"return_when": asyncio.FIRST_COMPLETED}])
def test_tasks_are_orchestrated_by_the_application(cluster: LocalCluster, options: dict[str, Any]) -> None:
    stop, seen = threading.Event(), concurrent.futures.Future[str]()
    registry = make_registry(seen)

    def embed() -> None:
        with asyncio.Runner() as runner:
            tasks = runner.run(kopf.spawn_tasks(registry=registry, clusterwide=True, stop_flag=stop))
            runner.run(kopf.run_tasks(tasks, **options))
            assert all(task.done() for task in tasks)

    with running(embed):
        seen.result(PATIENCE)
        stop.set()


async def test_tasks_are_waited_for_by_the_application(cluster: LocalCluster) -> None:
    stop, seen = asyncio.Event(), concurrent.futures.Future[str]()
    tasks = await kopf.spawn_tasks(registry=make_registry(seen), clusterwide=True, stop_flag=stop)
    await asyncio.wait_for(asyncio.wrap_future(seen), PATIENCE)
    stop.set()
    done, pending = await asyncio.wait(tasks, timeout=PATIENCE)
    assert done
    assert not pending


async def test_tasks_of_the_application_are_left_alone(cluster: LocalCluster) -> None:
    """Neither those from before, nor those from after the start, nor the ignored ones; and nothing is left behind."""
    stop, seen = asyncio.Event(), concurrent.futures.Future[str]()
    earlier = asyncio.create_task(asyncio.Event().wait())
    tasks = await kopf.spawn_tasks(registry=make_registry(seen), clusterwide=True, stop_flag=stop)
    later = asyncio.create_task(asyncio.Event().wait())
    ignored = asyncio.create_task(asyncio.Event().wait())
    await asyncio.wait_for(asyncio.wrap_future(seen), PATIENCE)
    stop.set()
    await asyncio.wait_for(kopf.run_tasks([*tasks, ignored], ignored=[ignored]), PATIENCE)
    own = {earlier, later, ignored}
    assert not any(task.done() for task in own)
    assert asyncio.all_tasks() - own == {asyncio.current_task()}
    for task in own:
        task.cancel()
    await asyncio.gather(*own, return_exceptions=True)


async def test_cancellation_is_a_proper_stop(cluster: LocalCluster) -> None:
    seen, cleaned = concurrent.futures.Future[str](), asyncio.Event()
    registry = make_registry(seen)

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_: Any) -> None:
        cleaned.set()

    task = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True))
    await asyncio.wait_for(asyncio.wrap_future(seen), PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()
    assert cleaned.is_set()


async def test_failures_of_other_root_tasks_stop_the_operator(cluster: LocalCluster) -> None:
    seen = concurrent.futures.Future[str]()
    tasks = await kopf.spawn_tasks(registry=make_registry(seen), clusterwide=True)

    async def fail() -> None:
        await asyncio.wrap_future(seen)
        raise RuntimeError("the application has failed")

    with pytest.raises(RuntimeError, match="the application has failed"):
        await asyncio.wait_for(kopf.run_tasks([*tasks, asyncio.create_task(fail())]), PATIENCE)
    assert all(task.done() for task in tasks)


async def test_signals_stop_the_operator_and_are_restored(cluster: LocalCluster) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = concurrent.futures.Future[str]()
    task = asyncio.create_task(kopf.operator(registry=make_registry(seen), clusterwide=True))
    await asyncio.wait_for(asyncio.wrap_future(seen), PATIENCE)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(task, PATIENCE)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_signals_of_the_application_remain_its_own(cluster: LocalCluster) -> None:
    received: list[int] = []
    original = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        stop, seen = asyncio.Event(), concurrent.futures.Future[str]()
        task = asyncio.create_task(kopf.operator(registry=make_registry(seen), clusterwide=True, stop_flag=stop))
        await asyncio.wait_for(asyncio.wrap_future(seen), PATIENCE)
        signal.raise_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while not received and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert received == [signal.SIGTERM]
        assert not task.done()
        stop.set()
        await asyncio.wait_for(task, PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, original)


@pytest.mark.parametrize(
    "run",
    [
        lambda **options: kopf.run(**options),
        lambda **options: asyncio.run(kopf.operator(**options)),
    ],
    ids=["run", "operator"],
)
def test_functions_that_can_never_work_are_refused_before_anything_runs(run: Callable[..., None]) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def startup_fn(**_: Any) -> None:
        raise AssertionError("it must not be called")

    @kopf.on.create("kopfexamples", registry=registry)
    def create_fn(spce: Any, **_: Any) -> None: ...

    with pytest.raises(kopf.DeclarationError, match=r"test_embedding.py:\d+: .*create_fn\(\) requires 'spce'"):
        run(registry=registry)
