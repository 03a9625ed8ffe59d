"""
Chaos: the API fails at any moment; everything is handled, nothing twice.

The random decisions are seeded. What exactly is going on at those moments still differs from run to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Obj, Refused, is_handled
from tests.behaviour.running import Logs, Operator
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("by_network")

OBJECTS_OF_FAILING_API = int(os.environ.get("KOPF_TEST_FAILURES", "300"))
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"

Pair = tuple[str, str]


async def list_objects(api: API) -> list[Obj]:
    return list((await api.request("GET", PATH))["items"])


@pytest.mark.timeout(300)
async def test_a_failing_api(api: API, operator: Operator, logs: Logs) -> None:
    count = OBJECTS_OF_FAILING_API
    calls: Counter[Pair] = Counter()
    done = asyncio.Event()

    for id in ("first", "second"):

        @kopf.on.create("kopf.dev", "kopfexamples", id=id, param=id)
        async def fn(name: str, param: str, **_: Any) -> str:
            calls[name, param] += 1
            if len(calls) == 2 * count:
                done.set()
            return param

    operator.set("networking.error_backoffs", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1, 1])
    logging.getLogger("kopf").setLevel(logging.INFO)
    await operator.start()
    operator.cluster.faults.inject(500, rate=0.01)
    operator.cluster.faults.inject(429, rate=0.01, retry_after=1)
    operator.cluster.faults.drop_watches_every(2)
    started = asyncio.get_running_loop().time()

    names = iter(range(count))
    await asyncio.gather(*(create_all(api, names) for _ in range(50)))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
        while not all(is_handled(obj) for obj in await try_to_list(api)):
            await asyncio.sleep(0.1)
    objects = await try_to_list(api)
    assert len(objects) == count
    assert all(obj["status"] == {"first": "first", "second": "second"} for obj in objects)
    assert set(calls.values()) == {1}
    assert not [record for record in logs.records if record.exc_info]
    assert not logs.get_messages(level=logging.ERROR)
    assert asyncio.get_running_loop().time() - started < 90


async def create_all(api: API, names: Iterator[int]) -> None:
    """Create objects as long as there are names for them, in spite of everything."""
    for number in names:
        obj = {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "metadata": {"name": f"obj{number}"},
            "spec": {"field": number},
        }
        is_created = False
        while not is_created:
            with contextlib.suppress(Refused):
                await api.request("POST", PATH, obj)
                is_created = True


async def try_to_list(api: API) -> list[Obj]:
    while True:
        with contextlib.suppress(Refused):
            return await list_objects(api)
