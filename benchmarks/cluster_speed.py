"""
Measure the local cluster itself: it must never be the bottleneck of tests and benchmarks.

    python -m benchmarks.cluster_speed --objects 10000

The server is in a process of its own; what counts is its CPU time, as the load takes more than the server.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import dataclasses
import itertools
import json
import pathlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import yaml

from benchmarks.loading import PATH
from benchmarks.processes import Meter, running_cluster

TITLE = "cluster"
OBJECTS = 10_000
PATCHES = 3_000
WATCHERS = 100
_WORKERS = 8
_LISTS = 5
_TIMEOUT = 120.0  # only for what hangs, in seconds
_MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclasses.dataclass(frozen=True)
class Result:
    """One property of the local cluster, as it is and as it must be."""

    title: str
    value: float
    unit: str
    bound: float
    at_least: bool = False

    @property
    def is_good(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


class Counter:
    """Counts up, and tells when there are enough."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._total = 0

    def add(self, number: int) -> None:
        self._total += number
        self._changed.set()

    async def wait(self, total: int) -> None:
        async with asyncio.timeout(_TIMEOUT):
            while self._total < total:
                self._changed.clear()
                await self._changed.wait()


async def measure(objects: int = OBJECTS) -> list[Result]:
    """Measure everything on one new cluster."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = pathlib.Path(folder) / "kubeconfig.yaml"
        async with running_cluster(kubeconfig) as meter:
            results = [Result("start of a process until it serves", meter.cpu, "s of CPU", 0.5)]
            async with _connect(yaml.safe_load(kubeconfig.read_text())) as session:
                results += await _measure_requests(session, meter, objects)
            return results


async def _measure_requests(session: aiohttp.ClientSession, meter: Meter, objects: int) -> list[Result]:
    async with _watching(session, 1) as seen:
        creating = await _rate(meter, objects, lambda number: _create(session, number))
        memory = meter.memory / 1024
        patching = await _rate(meter, PATCHES, lambda number: _patch(session, number % objects))
        await seen.wait(objects + PATCHES)
    before = meter.cpu
    for _ in range(_LISTS):
        async with session.get(PATH, headers={"Accept-Encoding": "identity"}) as response:
            await response.read()
    listing = (meter.cpu - before) / _LISTS
    async with _watching(session, WATCHERS) as seen:
        await seen.wait(objects * WATCHERS)
        fanning = await _rate(meter, PATCHES, lambda number: _patch(session, number % objects))
        await seen.wait((objects + PATCHES) * WATCHERS)
    return [
        Result("creations with one watcher", creating, "per second of CPU", 1500, at_least=True),
        Result("merge-patches with one watcher", patching, "per second of CPU", 1500, at_least=True),
        Result(f"merge-patches with {WATCHERS} watchers", fanning, "per second of CPU", 500, at_least=True),
        Result(f"a list of {objects} objects", listing, "s of CPU", 0.5),
        Result(f"memory with {objects} small objects", memory, "MiB", 100),
    ]


async def _rate(meter: Meter, count: int, act: Callable[[int], Awaitable[None]]) -> float:
    """Do it so many times, several at once; give the rate per second of the server's CPU."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await act(number)

    before = meter.cpu
    async with asyncio.TaskGroup() as group:
        for _ in range(_WORKERS):
            group.create_task(work())
    return count / (meter.cpu - before)


async def _create(session: aiohttp.ClientSession, number: int) -> None:
    body = {
        "apiVersion": "bench.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": f"widget-{number}", "labels": {"tier": "backend"}},
        "spec": {"value": number},
    }
    async with session.post(PATH, json=body) as response:
        response.raise_for_status()


_values = itertools.count(1)


async def _patch(session: aiohttp.ClientSession, number: int) -> None:
    body = json.dumps({"spec": {"value": -next(_values)}})
    async with session.patch(f"{PATH}/widget-{number}", data=body, headers=_MERGE) as response:
        response.raise_for_status()


@contextlib.asynccontextmanager
async def _watching(session: aiohttp.ClientSession, count: int) -> AsyncIterator[Counter]:
    """Watch as many times at once; give what counts the events that all the watchers have seen."""
    seen = Counter()

    async def watch() -> None:
        async with session.get(PATH, params={"watch": "1"}) as response:
            async for chunk in response.content.iter_any():
                seen.add(chunk.count(b"\n"))

    tasks = [asyncio.create_task(watch()) for _ in range(count)]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _connect(config: dict[str, Any]) -> AsyncIterator[aiohttp.ClientSession]:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    async with aiohttp.ClientSession(
        cluster["server"],
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        headers={"Authorization": f"Bearer {user['token']}"},
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield session


def make_table(results: list[Result]) -> str:
    """Make a table in Markdown, with what must be so."""
    rows = ["| local cluster | measured | must be |", "| --- | ---: | ---: |"]
    rows += [
        f"| {item.title} | {item.value:.{2 if item.value < 10 else 0}f} {item.unit} "
        f"| {'≥' if item.at_least else '≤'} {item.bound:g}{'' if item.is_good else ' (missed)'} |"
        for item in results
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_speed", description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS, help="how many objects (default: %(default)s)")
    print(make_table(asyncio.run(measure(parser.parse_args().objects))))


if __name__ == "__main__":
    main()
