"""
Compare what an object takes in calm operators: each is woken up for it, so that nothing is in the caches anymore.

    .venv/bin/python -m benchmarks.calm
    .venv/bin/python -m benchmarks.calm --handlers 6
    .venv/bin/python -m benchmarks.calm --handlers 0   # only raw events
    .venv/bin/python -m benchmarks.calm --beside ../other/.venv/bin/python   # e.g. of another version

The operator runs beside the floor (``bare_operator.py``), or beside the same operator under another Python, each on
its own local cluster; the objects are created in turn, a new one every 20 ms. So, the noise of the machine is the same
for both, and the ratio is what to look at. CPU is what the scheduler has counted, in milliseconds per object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence

from benchmarks.loading import Client
from benchmarks.places import local_place
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator

INTERVAL = 0.02
"""From one object to the next one, whosever they are, in seconds."""

OBJECTS = 200
"""For each of the two, in every round."""

FILES = {0: "raw_events.py", 1: "create_one.py", 6: "create_six.py"}
"""The operators by the number of their handlers of changes."""

WARM_UP = 50
ROUNDS = 5
_SETTLING = 3.0
_LAST_WORDS = 0.5
"""How long the operators may work on the last objects, in seconds."""


@contextlib.asynccontextmanager
async def running(
    python: pathlib.Path | None, arguments: Sequence[str] = (), *, file: str = "create_one.py", handlers: int = 1
) -> AsyncIterator[tuple[Client, Meter]]:
    """Run this operator by this Python with these arguments, or the bare one, on a cluster of its own."""
    async with contextlib.AsyncExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kopf-benchmark-")))
        place = await stack.enter_async_context(local_place(folder))
        log = folder / "operator.log"
        if python is None:
            meter = await stack.enter_async_context(_running_bare(place.kubeconfig, log, handlers))
        else:
            pipe = Pipe()
            await stack.enter_async_context(pipe.reader())
            meter = await stack.enter_async_context(
                running_operator(
                    Framework("kopf", python, arguments), OPERATORS / file,
                    kubeconfig=place.kubeconfig, pipe=pipe, log=log,
                )
            )  # fmt: skip
        yield place.client, meter


@contextlib.asynccontextmanager
async def _running_bare(kubeconfig: str, log: pathlib.Path, handlers: int) -> AsyncIterator[Meter]:
    environ = {**os.environ, "KUBECONFIG": kubeconfig}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.bare_operator", str(handlers), env=environ, stdout=output, stderr=output
        )
    try:
        yield Meter(process.pid)
        if process.returncode is not None:
            raise RuntimeError(f"The bare operator has exited with the code {process.returncode}.")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def read_cpu(meter: Meter) -> float:
    """Get the CPU time of all threads, more precisely than in the ticks of the clock, in milliseconds."""
    total = 0
    for thread in pathlib.Path(f"/proc/{meter.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e6


async def load(clients: Sequence[Client], prefix: str, count: int) -> None:
    """Create the objects at a steady pace, in turn."""
    loop = asyncio.get_running_loop()
    planned = loop.time()
    for index in range(count):
        for client in clients:
            await client.create(f"{prefix}-{index}")
            planned = max(planned + INTERVAL, loop.time())
            await asyncio.sleep(planned - loop.time())


async def main(args: Sequence[str]) -> None:
    """Measure, and print the rounds and the median."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calm")
    parser.add_argument("--beside", type=pathlib.Path, metavar="PYTHON", help="the floor by default")
    parser.add_argument("--handlers", type=int, choices=FILES, default=1, help="how many there are (default: 1)")
    options = parser.parse_args(args)
    ratios = []
    operator = functools.partial(running, file=FILES[options.handlers], handlers=options.handlers)
    async with operator(pathlib.Path(sys.executable)) as ours, operator(options.beside) as other:
        meters = [ours[1], other[1]]
        clients = [ours[0], other[0]]
        await asyncio.sleep(_SETTLING)
        await load(clients, "warm-up", WARM_UP)
        await asyncio.sleep(_LAST_WORDS)
        for number in range(ROUNDS):
            before = [read_cpu(meter) for meter in meters]
            await load(clients, f"round-{number}", OBJECTS)
            await asyncio.sleep(_LAST_WORDS)
            costs = [(read_cpu(meter) - cpu) / OBJECTS for meter, cpu in zip(meters, before, strict=True)]
            ratios.append(costs[0] / costs[1])
            print(f"{costs[0]:.2f} ms beside {costs[1]:.2f} ms: x {ratios[-1]:.2f}", flush=True)
    print(f"median: x {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
