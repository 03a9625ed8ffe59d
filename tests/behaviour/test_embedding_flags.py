"""Those who wait for the flags of an operator: none of them waits forever, whatever becomes of the operator."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.patience import PATIENCE

ThreadFlag = threading.Event | concurrent.futures.Future[None]

NOTHING_LISTENS = kopf.ConnectionInfo(server="http://127.0.0.1:1")


def make_registry(login: Callable[[], kopf.ConnectionInfo]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.event("configmaps", registry=registry)(lambda **_: None)
    kopf.on.login(registry=registry)(lambda **_: login())
    return registry


def refuse() -> kopf.ConnectionInfo:
    raise kopf.PermanentError("the account is locked")


def postpone() -> kopf.ConnectionInfo:
    raise kopf.TemporaryError("the account is not unlocked yet", delay=PATIENCE)


def embed(registry: kopf.OperatorRegistry, outcome: concurrent.futures.Future[None], **kwargs: Any) -> threading.Thread:
    """Run an operator as applications do: in a thread of its own."""

    def run() -> None:
        try:
            kopf.run(registry=registry, clusterwide=True, standalone=True, **kwargs)
        except BaseException as e:
            outcome.set_exception(e)
        else:
            outcome.set_result(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def raise_flag(flag: ThreadFlag) -> None:
    flag.set() if isinstance(flag, threading.Event) else flag.set_result(None)


# --- the operator ends before it is ready ---


@pytest.mark.parametrize("make_flag", [threading.Event, concurrent.futures.Future])
def test_flags_of_threads_when_the_login_is_refused(make_flag: Callable[[], ThreadFlag]) -> None:
    ready, outcome = make_flag(), concurrent.futures.Future[None]()
    embed(make_registry(refuse), outcome, ready_flag=ready)
    if isinstance(ready, threading.Event):
        assert ready.wait(PATIENCE)
    else:
        with pytest.raises(kopf.LoginError, match="the account is locked"):
            ready.result(PATIENCE)
    with pytest.raises(kopf.LoginError, match="the account is locked"):
        outcome.result(PATIENCE)


@pytest.mark.fastforward
@pytest.mark.parametrize("kind", ["event", "future"])
async def test_flags_of_event_loops_when_the_startup_fails(kind: str) -> None:
    registry = make_registry(refuse)

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_: Any) -> None:
        raise kopf.PermanentError("the database is not there")

    ready: Any = asyncio.Event() if kind == "event" else asyncio.get_running_loop().create_future()
    task = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, ready_flag=ready))
    if kind == "event":
        await asyncio.wait_for(ready.wait(), PATIENCE)
        assert task.done()  # so it can be seen that it is not ready
    else:
        with pytest.raises(Exception, match="the database is not there"):
            await asyncio.wait_for(ready, PATIENCE)
    with pytest.raises(Exception, match="the database is not there"):
        await task


async def test_wrong_options() -> None:
    ready = concurrent.futures.Future[None]()
    with pytest.raises(ValueError, match="either cluster-wide or restricted"):
        await kopf.operator(registry=make_registry(refuse), clusterwide=True, namespace="ns", ready_flag=ready)
    with pytest.raises(ValueError, match="either cluster-wide or restricted"):
        ready.result(0)


@pytest.mark.fastforward
async def test_stopped_before_it_is_ready() -> None:
    ready, stop = concurrent.futures.Future[None](), asyncio.Event()
    stop.set()
    await asyncio.wait_for(
        kopf.operator(registry=make_registry(postpone), clusterwide=True, ready_flag=ready, stop_flag=stop), PATIENCE
    )
    assert ready.cancelled()


@pytest.mark.fastforward
async def test_cancelled_before_it_begins() -> None:
    ready = asyncio.Event()
    tasks = await kopf.spawn_tasks(registry=make_registry(refuse), clusterwide=True, ready_flag=ready)
    for task in tasks:
        task.cancel()
    await asyncio.wait_for(ready.wait(), PATIENCE)


# --- the operator cannot get to the cluster ---


@pytest.mark.fastforward
@pytest.mark.parametrize("login", [lambda: NOTHING_LISTENS, postpone], ids=["no-cluster", "no-login"])
async def test_unreachable_clusters(login: Callable[[], kopf.ConnectionInfo]) -> None:
    """Those who wait until it is ready, and are the only ones to stop it, can do that."""
    ready, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(registry=make_registry(login), clusterwide=True, ready_flag=ready, stop_flag=stop)
    )
    await asyncio.wait_for(ready.wait(), PATIENCE)
    assert not task.done()
    stop.set()
    await asyncio.wait_for(task, PATIENCE)


# --- the flags to stop it ---


@pytest.mark.parametrize("make_flag", [threading.Event, concurrent.futures.Future])
def test_stop_flags_that_are_raised_too_late(
    make_flag: Callable[[], ThreadFlag],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event loop of the operator is closed already: nobody there may be told of the flag."""
    stop, outcome = make_flag(), concurrent.futures.Future[None]()
    thread = embed(make_registry(refuse), outcome, stop_flag=stop)
    with pytest.raises(kopf.LoginError):
        outcome.result(PATIENCE)
    thread.join(PATIENCE)
    raise_flag(stop)
    assert not [record for record in caplog.records if record.name.startswith(("asyncio", "concurrent"))]


@pytest.mark.parametrize("make_flag", [threading.Event, concurrent.futures.Future])
def test_stop_flags_that_are_raised_during_the_login(make_flag: Callable[[], ThreadFlag]) -> None:
    stop, outcome, logging_in = make_flag(), concurrent.futures.Future[None](), threading.Event()

    def login() -> kopf.ConnectionInfo:
        logging_in.set()
        return postpone()

    embed(make_registry(login), outcome, stop_flag=stop)
    assert logging_in.wait(PATIENCE)
    raise_flag(stop)
    outcome.result(PATIENCE)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_stop_flags_that_are_not_fulfilled(how: str) -> None:
    """Whatever becomes of the future, nobody will come to stop the operator."""
    stop = asyncio.get_running_loop().create_future()
    stop.cancel() if how == "cancelled" else stop.set_exception(RuntimeError("the application has failed"))
    await asyncio.wait_for(kopf.operator(registry=make_registry(postpone), clusterwide=True, stop_flag=stop), PATIENCE)


async def test_stop_flags_of_other_event_loops() -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(ValueError, match="belongs to another event loop"):
            await kopf.operator(registry=make_registry(postpone), clusterwide=True, stop_flag=loop.create_future())
    finally:
        loop.close()
