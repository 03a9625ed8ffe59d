"""
Selection by the server: what an operator costs that is for one object of a hundred, with it and without it.

Run as ``python -m benchmarks.selection``. The objects are there before the operator starts; then each of them changes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import statistics
import sys
import tempfile

from benchmarks.loading import Client
from benchmarks.places import local_place
from benchmarks.processes import OPERATORS, Framework, Pipe, running_operator

_SHARE = 100
_SETTLING = 3.0
_LABELS = ("frontend", "backend")

Figures = dict[str, float]


async def _read(reader: asyncio.StreamReader, count: int) -> None:
    """Wait until so many events are handled."""
    for _ in range(count):
        await asyncio.wait_for(reader.readline(), 300)


async def _in_parallel(actions: list[tuple[Client, str]], phase: str) -> None:
    """Change the objects, a few dozens at once."""
    remaining = iter(actions)

    async def work() -> None:
        for client, name in remaining:
            await client.change(name, phase=phase)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(work())


async def measure(client: Client, names: list[str], matching: int, config: pathlib.Path, phase: str) -> Figures:
    """Run the operator once."""
    pipe = Pipe()
    file = OPERATORS / "selected.py"
    framework = Framework("this", pathlib.Path(sys.executable))
    figures: Figures = {}
    async with (
        pipe.reader() as reader,
        running_operator(framework, file, kubeconfig=config, pipe=pipe, log=config.with_suffix(".log")) as meter,
    ):
        await _read(reader, matching)
        await asyncio.sleep(_SETTLING)
        figures["start: CPU, s"], figures["start: memory, MiB"] = meter.cpu, meter.memory / 1024
        figures["start: peak, MiB"] = meter.peak / 1024
        before = meter.cpu
        await _in_parallel([(client, name) for name in names], phase)
        await _read(reader, matching)
        await asyncio.sleep(_SETTLING)
        figures["changes: CPU, s"], figures["changes: memory, MiB"] = meter.cpu - before, meter.memory / 1024
    return figures


async def _create(client: Client, names: list[str]) -> None:
    for index, name in enumerate(names):
        await client.create(name, tier=_LABELS[index % _SHARE > 0])


async def main(count: int, rounds: int) -> None:
    """Measure both ways in turn; print the medians."""
    names = [f"widget-{index:06}" for index in range(count)]
    with tempfile.TemporaryDirectory() as directory:
        async with local_place(pathlib.Path(directory)) as place:
            client, config = place.client, pathlib.Path(place.kubeconfig)
            await _create(client, names)
            results: dict[str, list[Figures]] = {"no": [], "yes": []}
            for number in range(rounds):
                for push in results:
                    os.environ["BENCHMARK_PUSH"] = push
                    matching = len(range(0, count, _SHARE))
                    results[push].append(await measure(client, names, matching, config, f"{number}-{push}"))
    print(f"{count} objects, 1 of {_SHARE} matching, medians of {rounds} rounds: all listed / selected by the server")
    for key in results["no"][0]:
        without, with_it = (statistics.median(item[key] for item in results[push]) for push in ("no", "yes"))
        print(f"{key:24} {without:8.2f} {with_it:8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.count, arguments.rounds))
