"""What a handler sets in context variables is seen neither by other objects nor by the next runs of a timer."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator

pytestmark = pytest.mark.fastforward

variable: contextvars.ContextVar[str | None] = contextvars.ContextVar("variable", default=None)


async def test_runs_of_a_timer(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", interval=1)
    async def timer_fn(**_: Any) -> None:
        calls.append(variable.get())
        variable.set("of a previous run")

    await operator.start_and_call(kex, calls, times=3)
    assert set(calls) == {None}


async def test_handlers_of_objects_that_wait_for_each_other(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(name: str, **_: Any) -> None:
        calls.append(variable.get())
        variable.set(name)
        await asyncio.sleep(1)

    operator.set("queueing.worker_limit", 1)
    await operator.start()
    await kex.create_all(("one", "two", "three"))
    await calls.wait_length(3)
    assert set(calls) == {None}


async def test_daemons_and_handlers_of_the_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    async def event_fn(**_: Any) -> None:
        variable.set("of the event")

    kopf.daemon("kopfexamples")(calls.noting(lambda **_: variable.get()))
    await operator.start_and_call(kex, calls)
    assert calls == [None]


async def test_those_of_whoever_runs_the_operator_are_seen(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples")(calls.noting(lambda **_: variable.get()))
    token = variable.set("of the embedding application")
    await operator.start()
    variable.reset(token)
    await kex.create()
    await calls.wait_length(1)
    assert calls == ["of the embedding application"]
