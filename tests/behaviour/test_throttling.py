"""Throttling: objects that cannot be handled because of errors of the API are left alone, by the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, is_handled
from tests.behaviour.running import Logs, Operator

pytestmark = pytest.mark.fastforward


class Endless:
    """Not a collection, but it can be iterated over again and again."""

    def __iter__(self) -> Iterator[float]:
        yield 10
        yield 20
        while True:
            yield 30


class Refusals:
    """The changes that are made by the operator are refused: so many times for the specified value of the field."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.handled: list[int] = []
        self.times: dict[int, int] = {}

    async def handle(self, spec: kopf.Spec, **_: Any) -> None:
        self.handled.append(spec["field"])
        if times := self.times.pop(spec["field"], None):
            self._operator.cluster.faults.inject(
                400, verb="patch", resource="kopfexamples", times=times, message="it is refused"
            )


@pytest.fixture
async def refusals(operator: Operator, logs: Logs) -> Refusals:
    refusals = Refusals(operator)
    kopf.on.create("kopfexamples")(refusals.handle)
    kopf.on.update("kopfexamples")(refusals.handle)
    logs.expected.append("it is refused")
    return refusals


def configure(operator: Operator, delays: Any) -> None:
    operator.set("queueing.error_delays", delays)


def get_said(logs: Logs) -> list[str]:
    """For how many seconds the object was left alone, each time."""
    return [record.getMessage().split(" seconds")[0].split()[-1] for record in logs.find(".*left alone.*")]


@pytest.mark.parametrize("delays", [[10, 20, 30], (10, 20, 30), Endless()], ids=["list", "tuple", "endless"])
async def test_the_last_delay_is_repeated_and_a_success_resets_them(
    operator: Operator,
    refusals: Refusals,
    kex: Objects,
    logs: Logs,
    delays: Any,
) -> None:
    configure(operator, delays)
    await operator.start()
    started = asyncio.get_running_loop().time()
    refusals.times = {1: 5, 2: 2}
    await kex.create_and_wait(spec={"field": 1})
    assert get_said(logs) == ["10", "20", "30", "30", "30"]
    assert 120 <= asyncio.get_running_loop().time() - started < 130
    await kex.change_and_wait(field=2)
    assert get_said(logs)[5:] == ["10", "20"]
    assert refusals.handled == [1, 2]


@pytest.mark.parametrize("delays", [[], ()])
async def test_it_can_be_disabled(
    operator: Operator,
    refusals: Refusals,
    kex: Objects,
    logs: Logs,
    delays: Any,
) -> None:
    configure(operator, delays)
    await operator.start()
    started = asyncio.get_running_loop().time()
    refusals.times = {1: 5}
    await kex.create_and_wait(spec={"field": 1})
    assert len(get_said(logs)) == 5
    assert asyncio.get_running_loop().time() - started < 10


async def test_only_the_latest_state_is_handled_afterwards(
    operator: Operator,
    refusals: Refusals,
    kex: Objects,
    logs: Logs,
) -> None:
    configure(operator, 100)
    await operator.start_and_handle(kex, spec={"field": 1})
    refusals.times = {2: 1}
    await kex.merge({"spec": {"field": 2}})
    await logs.wait(".*left alone for 100 seconds.*")
    for value in range(3, 10):
        await kex.merge({"metadata": {"labels": {"l": str(value)}}})
    await kex.change_and_wait(field=9)
    assert refusals.handled == [1, 2, 9]


async def test_the_delays_are_not_kept_over_restarts(
    operator: Operator,
    refusals: Refusals,
    kex: Objects,
    logs: Logs,
) -> None:
    configure(operator, 10_000)
    await operator.start()
    refusals.times = {1: 1}
    started = asyncio.get_running_loop().time()
    await kex.create(spec={"field": 1})
    await logs.wait(".*left alone.*")
    await operator.restart()
    await kex.wait_handled()
    assert asyncio.get_running_loop().time() - started < 100


@pytest.mark.parametrize("change", ["deletion", "edit"])
async def test_what_can_be_the_cure_does_not_wait(
    operator: Operator,
    refusals: Refusals,
    kex: Objects,
    logs: Logs,
    change: str,
) -> None:
    @kopf.on.delete("kopfexamples")
    async def delete_fn(**_: Any) -> None:
        refusals.handled.append(-1)

    configure(operator, 10_000)
    await operator.start_and_handle(kex, spec={"field": 1})
    refusals.times = {2: 1}
    await kex.merge({"spec": {"field": 2}})
    await logs.wait(".*left alone for 10000 seconds.*")
    started = asyncio.get_running_loop().time()
    if change == "deletion":
        await kex.delete_and_wait()
    else:
        await kex.change_and_wait(field=3)
    assert asyncio.get_running_loop().time() - started < 1000
    assert refusals.handled == [1, 2, -1 if change == "deletion" else 3]


async def test_what_is_not_the_cure_waits(operator: Operator, refusals: Refusals, kex: Objects, logs: Logs) -> None:
    configure(operator, 10_000)
    await operator.start()
    refusals.times = {1: 1}
    await kex.create(spec={"field": 1})
    await logs.wait(".*left alone for 10000 seconds.*")
    started = asyncio.get_running_loop().time()
    await kex.merge({"metadata": {"labels": {"l": "v"}}})
    await kex.wait(lambda obj: is_handled(obj) and "l" in obj["metadata"].get("labels", {}))
    assert asyncio.get_running_loop().time() - started >= 9000
