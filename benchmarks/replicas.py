"""
Measure several replicas of one operator that share the work: each of them, and all of them together.

    .venv/bin/python -m benchmarks.replicas --size 100000 --replicas 1,2,4

First, all of them start at once with many objects that were handled before, until they have nothing to do. Each number
of replicas has a group of its own: with the Leases of fewer replicas, the first one would begin with everything. Then,
other objects are created at a steady pace. CPU and memory are of the processes; what a replica has received, is counted
by a proxy before it. With ``--selector``, the server sends to each replica only its part (``shardSelector``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence

from benchmarks.listed import create
from benchmarks.loading import Client
from benchmarks.places import Place, local_place, read_info
from benchmarks.processes import OPERATORS, Framework, Meter, Pipe, running_operator
from tests.replicas.links import Link, write_kubeconfig

_LOOK = 2.0
_FIRST_WAIT = 20.0
"""Nobody begins for a lease duration after the first start, and a bit more."""
_NOTHING = 0.05
"""What a replica takes in that time at most if it has nothing to do but to renew its lease, in seconds of CPU."""


@dataclasses.dataclass(frozen=True)
class Replica:
    """One of the replicas that are measured."""

    meter: Meter
    link: Link


async def create_steadily(client: Client, names: Sequence[str], rate: float) -> None:
    """Create the objects at that rate, per second; if the cluster is slower, at that of the cluster."""
    for name in names:
        begun = asyncio.get_running_loop().time()
        await client.create(name)
        await asyncio.sleep(begun + 1 / rate - asyncio.get_running_loop().time())


async def settle(replicas: Sequence[Replica]) -> None:
    """Wait until none of them has anything to do."""
    quiet, spent = 0, 0.0
    while quiet < 3:
        await asyncio.sleep(_LOOK)
        spent, former = sum(item.meter.cpu for item in replicas), spent
        quiet = quiet + 1 if spent - former < _NOTHING * len(replicas) else 0


@contextlib.asynccontextmanager
async def running_replicas(
    count: int, place: Place, folder: pathlib.Path, pipe: Pipe, operator: str
) -> AsyncIterator[list[Replica]]:
    """Start them at once."""
    host, _, port = read_info(place.kubeconfig).server.rpartition("/")[2].rpartition(":")
    framework = Framework("kopf", pathlib.Path(sys.executable))
    async with contextlib.AsyncExitStack() as stack:
        replicas = []
        for number in range(count):
            link = Link(host, int(port))
            await stack.enter_async_context(link.serving())
            kubeconfig = folder / f"replica-{number}.yaml"
            write_kubeconfig(pathlib.Path(place.kubeconfig), kubeconfig, link.port)
            running = running_operator(
                framework,
                OPERATORS / operator,
                kubeconfig=kubeconfig,
                pipe=pipe,
                log=folder / f"replica-{number}.log",
                options=[f"--shards=benchmark-{count}"],
                environ={"POD_NAME": f"replica-{number}", "POD_NAMESPACE": "default"},
            )
            replicas.append(Replica(await stack.enter_async_context(running), link))
        yield replicas


class Table:
    """What was measured, row by row."""

    def __init__(self) -> None:
        print("| phase | replicas | selector | CPU of each, s | peak of each, MiB | received by each, MiB | calls |")
        print("| --- | ---: | --- | --- | --- | --- | ---: |", flush=True)

    def add(self, phase: str, selector: bool, replicas: Sequence[Replica], before: Sequence[float], calls: int) -> None:
        cpu = " + ".join(f"{item.meter.cpu - spent:.2f}" for item, spent in zip(replicas, before, strict=True))
        peak = ", ".join(f"{item.meter.peak / 1024:.0f}" for item in replicas)
        received = ", ".join(f"{item.link.received / 2**20:.1f}" for item in replicas)
        answer = "yes" if selector else "no"
        print(f"| {phase} | {len(replicas)} | {answer} | {cpu} | {peak} | {received} | {calls} |", flush=True)


async def measure(options: argparse.Namespace, *, selector: bool, table: Table) -> None:
    """Measure different numbers of replicas, in turn, on one cluster."""
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        folder, pipe = pathlib.Path(name), Pipe()
        async with local_place(folder, ["ShardedListAndWatch"] if selector else []) as place, pipe.reader():
            await create(place.client, options.size)
            for count in map(int, options.replicas.split(",")):
                await place.client.reset_counters()
                async with running_replicas(count, place, folder, pipe, options.operator) as replicas:
                    await asyncio.sleep(_FIRST_WAIT)
                    await settle(replicas)
                    calls = sum((await place.client.read_counters() or {}).values())
                    table.add("start", selector, replicas, [0.0] * count, calls)
                    await place.client.reset_counters()
                    before = [item.meter.cpu for item in replicas]
                    for item in replicas:
                        item.link.received = 0
                    names = [f"created-{count}-{number:06}" for number in range(options.load)]
                    await create_steadily(place.client, names, options.rate)
                    await settle(replicas)
                    calls = sum((await place.client.read_counters() or {}).values()) - len(names)
                    table.add(f"{options.load} created", selector, replicas, before, calls)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas")
    parser.add_argument("--size", type=int, default=100_000, help="how many objects (default: %(default)s)")
    parser.add_argument("--load", type=int, default=2_000, help="how many are created then (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="in a second (default: %(default)s)")
    parser.add_argument("--replicas", default="1,2,4", help="how many, in turn (default: %(default)s)")
    parser.add_argument(
        "--operator", default="create_one.py", help="a file of benchmarks/operators (default: %(default)s)"
    )
    parser.add_argument("--selector", choices=["yes", "no", "both"], default="both")
    options = parser.parse_args()
    table = Table()
    for selector in [True, False] if options.selector == "both" else [options.selector == "yes"]:
        await measure(options, selector=selector, table=table)


if __name__ == "__main__":
    asyncio.run(main())
