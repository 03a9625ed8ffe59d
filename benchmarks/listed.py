"""
Measure a start with many objects that were handled before: nothing is to be done for them, but they must be looked at.

    .venv/bin/python -m benchmarks.listed --size 100000

CPU and the peak of memory of the whole process, from its start until it has nothing to do; and the same for the floor:
a bare script that lists the same objects and compares them (``bare_listing.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.loading import Client
from benchmarks.places import local_place
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator

_IN_FLIGHT = 50
_LOOK = 2.0
"""How often to look if the operator still works, in seconds."""

_NOTHING = 0.02
"""What it takes in that time at most if it has nothing to do, in seconds of CPU."""


async def create(client: Client, size: int) -> None:
    """Create the objects as if they were handled."""
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def create_one(number: int) -> None:
        async with room:
            await client.create(f"widget-{number:06}", handled=True)

    await asyncio.gather(*map(create_one, range(size)))


async def settle(meter: Meter, least: float) -> float:
    """Wait until the operator has taken that much CPU, and takes no more; get what it has taken, in seconds."""
    spent = meter.cpu
    while True:
        await asyncio.sleep(_LOOK)
        spent, previous = meter.cpu, spent
        if spent > least and spent - previous < _NOTHING:
            return spent


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listed")
    parser.add_argument("--size", type=int, default=100_000, help="how many objects (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of each, in turn (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        folder, pipe = pathlib.Path(name), Pipe()
        ours = Framework("kopf", pathlib.Path(sys.executable))
        async with local_place(folder) as place, pipe.reader():
            await create(place.client, options.size)
            for _ in range(options.rounds):
                command = [sys.executable, "-m", "benchmarks.bare_listing"]
                environ = {**os.environ, "KUBECONFIG": place.kubeconfig}
                bare = await asyncio.to_thread(
                    subprocess.run, command, env=environ, check=True, capture_output=True, text=True
                )
                _, floor, peak = map(float, bare.stdout.split())
                async with running_operator(
                    ours, OPERATORS / "create_one.py", kubeconfig=place.kubeconfig, pipe=pipe, log=folder / "log"
                ) as meter:
                    spent = await settle(meter, least=floor / 2)
                    print(
                        f"{options.size:,} objects: {spent:.2f} s of CPU, {meter.peak / 1024:.0f} MiB at the peak; "
                        f"the floor: {floor:.2f} s, {peak:.0f} MiB: x {spent / floor:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    asyncio.run(main())
