"""
Measure what it costs that an operator can be observed: with nobody who listens, and with the metrics.

    .venv/bin/python -m benchmarks.observed
    .venv/bin/python -m benchmarks.observed --size 1000 --rounds 40

First, in µs: what the question is if anybody listens, which is asked for every decision; and what the metrics add to
a creation with prepared answers, see `benchmarks.cycle`, and to a request.

Then, two whole operators, one of them with `--metrics`, each on its own local cluster: they get their objects in turn,
so the noise of the machine is the same for both. It is in ms of CPU for an object, and without the scrapes, which take
as much as the library needs for the text: that is measured apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import pathlib
import socket
import statistics
import sys
import time

from prometheus_client import REGISTRY
from prometheus_client.openmetrics.exposition import generate_latest

from benchmarks.calm import read_cpu, running
from benchmarks.cycle import Bench, declare_creation
from benchmarks.loading import Client
from benchmarks.processes import Meter
from kopf._client.http.request_facts import RequestBegun, Telling
from kopf._facts.bus import Bus
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.collector import get_collector
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._settings.settings import OperatorSettings
from kopf.cli.garbage import collect_rarely

ROUNDS = 60
REPEATS = 100_000
_IN_FLIGHT = 50
_SETTLING = 0.5
_NOTHING = 10.0
"""What an operator with nothing to do takes in that time at most, in ms of CPU."""


def measure_silence() -> float:
    """Get what the question costs if there is nobody to be told, in seconds."""
    bus = Bus()
    best = float("inf")
    for _ in range(20):
        started = time.process_time()
        for _ in range(REPEATS):
            if bus.is_heard:
                raise RuntimeError("Nobody listens.")
        asked = time.process_time() - started
        started = time.process_time()
        for _ in range(REPEATS):
            pass
        best = min(best, asked - (time.process_time() - started))
    return best / REPEATS


async def measure_cycle() -> tuple[float, float]:
    """Get what a creation takes with nobody listening, and with the metrics; in seconds."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    silent, heard = Bench(declare_creation, handled=False), Bench(declare_creation, handled=False)
    metrics = Metrics(heard.bus, OperatorRegistry(), OperatorSettings())
    collect_rarely()
    best = [float("inf"), float("inf")]
    for bench in (silent, heard):
        await bench.rehearse()
    for _ in range(ROUNDS):
        for index, bench in enumerate((silent, heard)):
            best[index] = min(best[index], await bench.run_cycles())
    if not metrics.read():
        raise RuntimeError("Nothing was measured.")
    return best[0], best[1]


def measure_request() -> float:
    """Get what the metrics add to a request, in seconds."""
    bus = Bus()
    metrics = Metrics(bus, OperatorRegistry(), OperatorSettings())
    best = float("inf")
    for _ in range(20):
        gc.collect()
        started = time.process_time()
        for _ in range(1000):
            telling = Telling(bus, RequestBegun("PATCH", "/api/v1/x", "https://localhost:6443", {}))
            telling.open(200)
            telling.end()
        best = min(best, time.process_time() - started)
    metrics.read()
    return best / 1000


def measure_scrape() -> tuple[float, int]:
    """Get what a scrape takes, in seconds, and how many lines it has."""
    metrics = Metrics(Bus(), OperatorRegistry(), OperatorSettings())
    collector = get_collector(REGISTRY)
    collector.add(metrics)
    best, text = float("inf"), b""
    for _ in range(20):
        started = time.process_time()
        text = generate_latest(REGISTRY)  # type: ignore[no-untyped-call]
        best = min(best, time.process_time() - started)
    collector.remove(metrics)
    return best, text.count(b"\n")


async def measure_operators(size: int, rounds: int) -> list[tuple[float, float]]:
    """Run both operators; get the pairs of the CPU per object, in ms: without metrics, and with them."""
    pairs = []
    python = pathlib.Path(sys.executable)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
    async with running(python) as silent, running(python, ["--metrics", url]) as heard:
        await asyncio.sleep(_SETTLING)
        for number in range(-1, rounds):  # the first one is for warming up
            order = (silent, heard) if number % 2 == 0 else (heard, silent)
            costs = {operator: await load(operator, f"round-{number + 1}", size) for operator in order}
            if number >= 0:
                pairs.append((costs[silent], costs[heard]))
                print(f"{pairs[-1][0]:.3f} ms, with metrics {pairs[-1][1]:.3f} ms", flush=True)
    return pairs


async def load(operator: tuple[Client, Meter], prefix: str, size: int) -> float:
    """Create the objects as fast as it goes, until the operator has nothing to do anymore; get the CPU per object."""
    client, meter = operator
    before = read_cpu(meter)
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def create(number: int) -> None:
        async with room:
            await client.create(f"{prefix}-{number}")

    await asyncio.gather(*map(create, range(size)))
    spent = read_cpu(meter)
    while True:
        await asyncio.sleep(_SETTLING)
        spent, previous = read_cpu(meter), spent
        if spent - previous < _NOTHING:
            return (spent - before) / size


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observed", description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="objects in a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="(default: %(default)s)")
    options = parser.parse_args()
    print(f"a decision of which nobody is told: {measure_silence() * 1e6:.3f} µs", flush=True)
    silent, heard = asyncio.run(measure_cycle())
    print(f"a creation: {silent * 1e6:.1f} µs, with metrics: {heard * 1e6:.1f} µs; plus a request: "
          f"{measure_request() * 1e6:.1f} µs", flush=True)  # fmt: skip
    scrape, lines = measure_scrape()
    print(f"a scrape of {lines} lines: {scrape * 1e3:.1f} ms", flush=True)
    pairs = asyncio.run(measure_operators(options.size, options.rounds))
    one, two = (min(pair[index] for pair in pairs) for index in (0, 1))
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    print(f"best: {one:.3f} ms, with metrics {two:.3f} ({two / one - 1:+.1%}); median of the ratios {ratio - 1:+.1%}")


if __name__ == "__main__":
    main()
