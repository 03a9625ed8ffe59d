"""
Measure what the recording takes: the same operator with ``--record`` and without it, on a local cluster each.

    .venv/bin/python -m benchmarks.recording

Both get the same objects in turn, so the noise of the machine is the same for both, and the ratio is what to look at:
one by one, as they come to a calm operator, and all at once. CPU is what the scheduler has counted, of all threads, in
milliseconds per object.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence

from benchmarks.calm import load, read_cpu
from benchmarks.loading import Client
from benchmarks.places import local_place
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator

OBJECTS = 300
ROUNDS = 3
_SETTLING = 3.0
_LAST_WORDS = 2.0
"""How long the operators may work on the last objects, in seconds."""


@contextlib.asynccontextmanager
async def running(options: Sequence[str]) -> AsyncIterator[tuple[Client, Meter]]:
    """Run the operator with these options, on a cluster of its own."""
    async with contextlib.AsyncExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kopf-benchmark-")))
        place = await stack.enter_async_context(local_place(folder))
        pipe = Pipe()
        await stack.enter_async_context(pipe.reader())
        meter = await stack.enter_async_context(
            running_operator(
                Framework("kopf", pathlib.Path(sys.executable)), OPERATORS / "create_one.py", options=options,
                kubeconfig=place.kubeconfig, pipe=pipe, log=folder / "operator.log",
            )
        )  # fmt: skip
        yield place.client, meter


async def load_at_once(clients: Sequence[Client], prefix: str, count: int) -> None:
    """Create all objects at once, for one operator after another."""
    for client in clients:
        await asyncio.gather(*(client.create(f"{prefix}-{index}") for index in range(count)))


def get_size(file: pathlib.Path) -> int:
    """Get how much is written so far."""
    return file.stat().st_size


async def main() -> None:
    """Measure, and print the rounds and the medians."""
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as folder:
        file = pathlib.Path(folder, "recording.gz")
        async with running(["--record", str(file)]) as recorded, running([]) as other:
            meters, clients = [recorded[1], other[1]], [recorded[0], other[0]]
            await asyncio.sleep(_SETTLING)
            await load(clients, "warm-up", 50)
            for loader in (load, load_at_once):
                ratios = []
                for number in range(ROUNDS):
                    size, before = get_size(file), [read_cpu(meter) for meter in meters]
                    await loader(clients, f"{loader.__name__.replace('_', '-')}-{number}", OBJECTS)
                    await asyncio.sleep(_LAST_WORDS)
                    costs = [(read_cpu(meter) - cpu) / OBJECTS for meter, cpu in zip(meters, before, strict=True)]
                    ratios.append(costs[0] / costs[1])
                    written = (get_size(file) - size) / OBJECTS
                    texts = f"{costs[0]:.2f} ms beside {costs[1]:.2f} ms: x {ratios[-1]:.2f}", f"{written:.0f} B"
                    print(*texts, sep=", ", flush=True)
                print(f"{loader.__name__}: median x {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    asyncio.run(main())
