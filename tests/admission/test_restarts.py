"""Restarts of the operator under load: nothing is refused, despite all failures of the webhooks are refusals."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import kopf
from tests.admission.configurations import NAME, Configurations
from tests.behaviour.objects import API, Objects
from tests.behaviour.running import Operator
from tests.patience import wait_until

IN_FLIGHT = 8


def configure(settings: kopf.OperatorSettings) -> None:
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=0)
    settings.admission.managed = NAME


def declare(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.mutate("kopfexamples", registry=registry, id="fill")
    async def fill(patch: kopf.Patch, **_: Any) -> None:
        await asyncio.sleep(0.05)
        patch.spec["reviewed"] = True


@contextlib.asynccontextmanager
async def loading(kex: Objects) -> AsyncIterator[list[bool]]:
    """Create objects all the time, and note which of them were reviewed. Any refusal fails the test."""
    numbers = itertools.count()
    reviewed: list[bool] = []

    async def load() -> None:
        for number in numbers:
            obj = await kex.create(f"obj{number}")
            reviewed.append(obj["spec"].get("reviewed", False))

    tasks = [asyncio.create_task(load()) for _ in range(IN_FLIGHT)]
    try:
        yield reviewed
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome for outcome in outcomes if not isinstance(outcome, asyncio.CancelledError)] == []


async def wait_more(reviewed: list[bool], count: int) -> None:
    """Wait until that many objects more are reviewed."""
    goal = reviewed.count(True) + count
    await wait_until(lambda: reviewed.count(True) >= goal)


async def test_restarts(operator: Operator, registry: kopf.OperatorRegistry, api: API, kex: Objects) -> None:
    declare(registry)
    operator.configure = configure
    await operator.launch()
    await Configurations(api).wait_webhooks("fill", type="mutating")
    async with loading(kex) as reviewed:
        await wait_more(reviewed, 20)
        await operator.stop()
        await operator.launch()
        await wait_more(reviewed, 20)


async def test_rolling_out(operator: Operator, registry: kopf.OperatorRegistry, api: API, kex: Objects) -> None:
    """With no gap: all objects are reviewed, either by the old operator or by the new one."""
    declare(registry)
    operator.configure = configure
    replica = Operator(operator.cluster, registry)
    replica.configure = configure
    configurations = Configurations(api)
    await operator.launch()
    (before,) = await configurations.wait_webhooks("fill", type="mutating")
    async with loading(kex) as reviewed:
        await wait_more(reviewed, 20)
        await replica.launch()
        await configurations.wait(
            lambda obj: obj and obj["webhooks"][0]["clientConfig"] != before["clientConfig"], "mutating"
        )
        await operator.stop()
        await wait_more(reviewed, 20)
    await replica.stop()
    assert all(reviewed)
