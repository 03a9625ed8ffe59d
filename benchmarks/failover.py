"""
Measure how long nobody works when the leader of two replicas goes, with a goodbye and without.

    .venv/bin/python -m benchmarks.failover --size 10000

The objects were handled before, so the replicas have nothing to do but to look at them. One object after another is
changed all the time; what is told, is the longest time with nothing handled since the signal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator

import psutil

from benchmarks.listed import create
from benchmarks.loading import LAST_HANDLED, Client
from benchmarks.places import Place, local_place
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator

_PAUSE = 0.05
"""Between two changes, in seconds."""
_WARMING, _WATCHED = 5.0, 25.0
"""For how long the standby has been there when the leader goes, and how long one looks then, in seconds."""


class Changes:
    """The changes of objects, and which of them are handled."""

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        self._size = size
        self.handled: list[float] = []
        self.count = 0

    async def make(self) -> None:
        while True:
            name = f"widget-{self.count * 37 % self._size:06}"
            self.count += 1
            await self._client.change(name, phase=f"phase-{self.count}")
            await asyncio.sleep(_PAUSE)

    async def follow(self) -> None:
        async for event in self._client.watch():
            essence = event.object.metadata.annotations.get(LAST_HANDLED, "")
            if '"phase":"phase-' in essence:
                self.handled.append(time.perf_counter())

    async def wait(self, since: float, duration: float) -> None:
        """Wait until changes were handled for that long after the moment, and once more."""
        while not self.handled or self.handled[-1] < since + duration:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.05)

    def get_gap(self, since: float) -> float:
        """Get the longest time with nothing handled since that moment, in seconds."""
        times = [since, *(time for time in self.handled if time > since)]
        return max(latter - former for former, latter in itertools.pairwise(times))


@contextlib.asynccontextmanager
async def _running(name: str, place: Place, pipe: Pipe, folder: pathlib.Path) -> AsyncIterator[Meter]:
    options, environ = ["--leader-election=benchmark"], {"POD_NAME": name, "POD_NAMESPACE": "default"}
    async with running_operator(
        Framework("kopf", pathlib.Path(sys.executable)),
        OPERATORS / "create_update_delete.py",
        kubeconfig=place.kubeconfig,
        pipe=pipe,
        log=folder / f"{name}.log",
        options=options,
        environ=environ,
    ) as meter:
        yield meter


async def _measure(number: signal.Signals, size: int) -> float:
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        folder, pipe = pathlib.Path(name), Pipe()
        async with local_place(folder) as place, pipe.reader():
            await create(place.client, size)
            changes = Changes(place.client, size)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(changes.follow()), group.create_task(changes.make())]
                async with contextlib.AsyncExitStack() as stack:
                    stack.enter_context(contextlib.suppress(RuntimeError))  # the leader has gone
                    leader = await stack.enter_async_context(_running("leader", place, pipe, folder))
                    await changes.wait(time.perf_counter(), 1)
                    await stack.enter_async_context(_running("standby", place, pipe, folder))
                    await changes.wait(time.perf_counter(), _WARMING)
                    since = time.perf_counter()
                    psutil.Process(leader.pid).send_signal(number)
                    await changes.wait(since, _WATCHED)
                for task in tasks:
                    task.cancel()
            return changes.get_gap(since)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover")
    parser.add_argument("--size", type=int, default=10_000, help="how many objects (default: %(default)s)")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGKILL):
        duration = await _measure(number, options.size)
        print(f"{number.name}: {duration:.2f} s with {options.size:,} objects", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
