"""
Measure what it costs that an operator can be observed: with nobody who observes, and with the metrics.

    .venv/bin/python -m benchmarks.observed
    .venv/bin/python -m benchmarks.observed --size 200 --rounds 100
    .venv/bin/python -m benchmarks.observed --instructions   # counted by valgrind: the same on any busy machine

First, in µs: what it takes to tell of something if nobody observes; and what the metrics add to
a creation with prepared answers, see `benchmarks.cycle`, and to a request.

Then, a whole operator with `--metrics` on a local cluster. Its metrics are switched off and on: each round is done both
ways, so the noise of the machine and the layout of the memory are the same for both. It is in ms of CPU for an object,
and without the scrapes, which take as much as the library needs for the text: that is measured apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import pathlib
import re
import signal
import socket
import statistics
import sys
import time
import urllib.request

from prometheus_client import REGISTRY
from prometheus_client.openmetrics.exposition import generate_latest

from benchmarks.calm import read_cpu, running
from benchmarks.cycle import WIDGETS, Bench, declare_creation
from benchmarks.instructions import count_instructions
from benchmarks.loading import Client
from benchmarks.processes import Meter
from kopf._controller.observer import Observers
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.collector import get_collector
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._settings.settings import OperatorSettings
from kopf.cli.memory import collect_rarely

ROUNDS = 60
REPEATS = 100_000
_IN_FLIGHT = 50
_SETTLING = 0.2
_NOTHING = 2.0
"""What an operator with nothing to do takes in that time at most, in ms of CPU."""

_START = 3.0


def measure_silence() -> float:
    """Get what it takes to tell of the end of a pass, which has the most to be told, to nobody; in seconds."""
    observers, resource, best = Observers(), WIDGETS, float("inf")
    for _ in range(20):
        started = time.process_time()
        for _ in range(REPEATS):
            observers.pass_ended(resource, "key", None, None, None, 0.0)
        told = time.process_time() - started
        started = time.process_time()
        for _ in range(REPEATS):
            pass
        best = min(best, told - (time.process_time() - started))
    return best / REPEATS


async def measure_cycle() -> tuple[float, float]:
    """Get what a creation takes with nobody observing, and with the metrics; in seconds."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    silent, heard = Bench(declare_creation), Bench(declare_creation)
    metrics = make_metrics(heard.observers)
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


def make_metrics(observers: Observers) -> Metrics:
    """Begin to count what is told to them."""
    registry = OperatorRegistry()
    declare_creation(registry)
    return Metrics(observers, registry, OperatorSettings())


def measure_request() -> float:
    """Get what the metrics add to a request, in seconds."""
    observers = Observers()
    metrics = make_metrics(observers)
    best, server = float("inf"), "https://localhost:6443"
    for _ in range(20):
        gc.collect()
        started = time.process_time()
        for _ in range(1000):
            begun = observers.clock()
            headers = observers.request_begun("PATCH", "/api/v1/x", server, None)
            observers.request_ended("PATCH", server, 200, None, begun, headers)
        best = min(best, time.process_time() - started)
    metrics.read()
    return best / 1000


def measure_scrape() -> tuple[float, int]:
    """Get what a scrape takes, in seconds, and how many lines it has."""
    metrics = Metrics(Observers(), OperatorRegistry(), OperatorSettings())
    collector = get_collector(REGISTRY)
    collector.add(metrics)
    best, text = float("inf"), b""
    for _ in range(20):
        started = time.process_time()
        text = generate_latest(REGISTRY)  # type: ignore[no-untyped-call]
        best = min(best, time.process_time() - started)
    collector.remove(metrics)
    return best, text.count(b"\n")


async def measure_operator(size: int, rounds: int) -> list[tuple[float, float]]:
    """Run the operator; get the pairs of the CPU per object, in ms: without metrics, and with them."""
    pairs = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
    async with running(pathlib.Path(sys.executable), ["--metrics", url], file="create_observed.py") as operator:
        await asyncio.sleep(_START)
        is_heard = True
        for number in range(-1, rounds):  # the first one is for warming up
            costs: dict[bool, float] = {}
            for _ in range(2):  # first as it was: whatever becomes slower by and by, is as often before as behind
                costs[is_heard] = await load(operator, f"round-{number + 1}-{is_heard:d}", size)
                if len(costs) == 1:
                    os.kill(operator[1].pid, signal.SIGUSR1)
                    is_heard = not is_heard
            if number >= 0:
                pairs.append((costs[False], costs[True]))
                print(f"{pairs[-1][0]:.3f} ms, with metrics {pairs[-1][1]:.3f} ms", flush=True)
        counted = await asyncio.to_thread(read_count, url)
        if counted != size * (rounds + 1):
            raise RuntimeError(f"{counted} objects are counted by the metrics: they were not on and off as supposed.")
    return pairs


def read_count(url: str) -> int:
    """Get from the metrics how many objects were created while they were on."""
    with urllib.request.urlopen(url) as response:
        text = response.read().decode()
    counts = re.findall(r'^kopf_handler_duration_seconds_count{.*reason="create".*} (.+)$', text, re.MULTILINE)
    return sum(int(float(count)) for count in counts)


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


def report_micros() -> None:
    """Print what the parts take."""
    print(f"an end of a pass that is told to nobody: {measure_silence() * 1e6:.3f} µs", flush=True)
    silent, heard = asyncio.run(measure_cycle())
    print(f"a creation: {silent * 1e6:.1f} µs, with metrics: {heard * 1e6:.1f} µs; plus a request: "
          f"{measure_request() * 1e6:.1f} µs", flush=True)  # fmt: skip
    scrape, lines = measure_scrape()
    print(f"a scrape of {lines} lines: {scrape * 1e3:.1f} ms", flush=True)


def report_instructions() -> None:
    """Print how many instructions of the processor a creation and its echo take."""
    silent, heard = count_instructions(is_heard=False), count_instructions(is_heard=True)
    print(f"a creation: {silent:,.0f} instructions, with metrics {heard:,.0f} ({heard - silent:+,.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observed", description=__doc__)
    parser.add_argument("--size", type=int, default=200, help="objects in a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="(default: %(default)s)")
    parser.add_argument("--instructions", action="store_true", help="only count the instructions of a creation")
    options = parser.parse_args()
    if options.instructions:
        report_instructions()
        return
    report_micros()
    pairs = asyncio.run(measure_operator(options.size, options.rounds))
    one, two = (min(pair[index] for pair in pairs) for index in (0, 1))
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    print(f"best: {one:.3f} ms, with metrics {two:.3f} ({two / one - 1:+.1%}); median of the ratios {ratio - 1:+.1%}")


if __name__ == "__main__":
    main()
