"""Garbage: what is over is freed at once, with no help of the collector of cyclic garbage, which comes rarely."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Operator
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("by_network")

REGISTRIES: dict[str, Callable[[kopf.OperatorRegistry, Callable[[Any], None]], None]] = {}
"""What declares handlers that tell of the logger that each of them gets: it lives and dies with all that they get."""


def declaring(
    fn: Callable[[kopf.OperatorRegistry, Callable[[Any], None]], None],
) -> Callable[[kopf.OperatorRegistry, Callable[[Any], None]], None]:
    REGISTRIES[fn.__name__] = fn
    return fn


@declaring
def changes(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.on.create("kopfexamples", registry=registry)
    @kopf.on.delete("kopfexamples", registry=registry)
    async def fn(logger: Any, **_: Any) -> dict[str, int]:
        note(logger)
        return {"x": 1}


@declaring
def threads(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.on.create("kopfexamples", registry=registry)
    def fn(logger: Any, **_: Any) -> None:
        note(logger)


@declaring
def errors(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.on.create("kopfexamples", registry=registry, retries=2, backoff=0.01)
    async def fn(logger: Any, **_: Any) -> None:
        note(logger)
        raise ValueError("of the handler")


@declaring
def errors_in_threads(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.on.create("kopfexamples", registry=registry, retries=2, backoff=0.01)
    def fn(logger: Any, **_: Any) -> None:
        note(logger)
        raise ValueError("of the handler")


@declaring
def errors_of_subhandlers(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.on.create("kopfexamples", registry=registry)
    async def fn(**_: Any) -> None:
        @kopf.subhandler()
        async def sub(logger: Any, retry: int, **_: Any) -> None:
            note(logger)
            if not retry:
                raise kopf.TemporaryError("of the sub-handler", delay=0.01)


@declaring
def daemons(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.daemon("kopfexamples", registry=registry)
    async def fn(stopped: Any, logger: Any, **_: Any) -> None:
        note(logger)
        await stopped.wait()


@declaring
def daemons_in_threads(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.daemon("kopfexamples", registry=registry)
    def fn(stopped: Any, logger: Any, **_: Any) -> None:
        note(logger)
        stopped.wait()


@declaring
def daemons_cancelled(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.daemon("kopfexamples", registry=registry, cancellation_timeout=5)
    async def fn(logger: Any, **_: Any) -> None:
        note(logger)
        await asyncio.Event().wait()


@declaring
def timers(registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    @kopf.timer("kopfexamples", registry=registry, interval=1)
    async def fn(logger: Any, **_: Any) -> None:
        note(logger)
        raise ValueError("of the timer")


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    logging.disable()  # pytest would keep what is logged, with the errors and their tracebacks
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


@pytest.mark.parametrize("declare", REGISTRIES.values(), ids=REGISTRIES)
@pytest.mark.usefixtures("_no_collector")
async def test_nothing_waits_for_the_collector(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    declare: Callable[[kopf.OperatorRegistry, Callable[[Any], None]], None],
) -> None:
    seen: list[weakref.ref[Any]] = []
    declare(registry, lambda logger: seen.append(weakref.ref(logger)))
    await operator.start()
    await kex.create_all(("obj1", "obj2"))
    while len(seen) < 2:
        await asyncio.sleep(0.01)
    for name in ("obj1", "obj2"):
        await kex.delete_and_wait(name)
    with contextlib.suppress(TimeoutError):
        await wait_until(lambda: not any(ref() is not None for ref in seen))
    assert [ref() for ref in seen if ref() is not None] == []
