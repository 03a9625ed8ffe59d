"""
What the test kit takes: ``python -m benchmarks.simulations``; the CPU time of one process.

The start of a simulation, a day of 1,000 timers, exploring 100 crash points, and 100 tellings of one story.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kopf
from kopf.testing import Simulation, SyncSimulation, explore, simulate

OBJECTS = 1000
HANDLERS = 25
STORIES = 100
Obj = dict[str, Any]

CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfexamples.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Namespaced",
        "names": {"kind": "KopfExample", "plural": "kopfexamples"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def make_object(name: str) -> Obj:
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": {"size": 1}}


@contextmanager
def measured(what: str) -> Iterator[None]:
    since = time.process_time()
    yield
    sys.stdout.write(f"{what:50} {time.process_time() - since:8.3f} s\n")


def measure_start() -> None:
    """The first one imports and compiles what is needed."""
    for number in range(3):
        with measured(f"start of simulation #{number}"), SyncSimulation(crds=CRD, registry=kopf.OperatorRegistry()):
            pass


def measure_timers(*, posting: bool) -> None:
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    settings.posting.enabled = posting

    @kopf.timer("kopfexamples", id="tick", interval=3600, registry=registry)
    async def tick(**_: Any) -> None:
        pass

    with SyncSimulation(registry=registry, crds=CRD, settings=settings) as simulation:
        for number in range(OBJECTS):
            simulation.apply(make_object(f"obj{number}"))
        simulation.settle()
        before = len(simulation.journal.get_calls("tick"))
        with measured(f"24 hours of {OBJECTS} hourly timers, events {'posted' if posting else 'off'}"):
            simulation.advance(hours=24)
        calls = len(simulation.journal.get_calls("tick")) - before
    assert calls == 24 * OBJECTS, calls


def measure_exploring() -> None:
    registry = kopf.OperatorRegistry()
    for number in range(HANDLERS):

        @kopf.on.create("kopfexamples", id=f"fn{number}", registry=registry)
        async def create_fn(**_: Any) -> None:
            pass

    @explore(registry=registry, crds=CRD, troubles=("crash",))
    async def test(simulation: Simulation) -> None:
        for name in ("one", "two"):
            await simulation.apply(make_object(name))
        await simulation.settle()

    since = time.process_time()
    report = test.exploration.explore()
    report.check()
    taken = time.process_time() - since
    count = len(report.trials)
    sys.stdout.write(f"{f'exploring {count} crash points':50} {taken:8.3f} s, {taken / count * 100:.1f} s per 100\n")


def measure_stories() -> None:
    def tell() -> str:
        return simulate(live, registry=registry, crds=CRD)

    registry = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=registry)
    async def create_fn(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("Not yet.", delay=10)

    async def live(simulation: Simulation) -> str:
        simulation.faults.fail(rate=0.2)
        simulation.faults.reorder()
        for number in range(5):
            await simulation.apply(make_object(f"obj{number}"))
        await simulation.advance(minutes=1)
        await simulation.crash()
        await simulation.restart()
        await simulation.settle(calm=60)
        return f"{simulation.journal}\n{simulation.logs}"

    with measured(f"{STORIES} tellings of one story"):
        told = {tell() for _ in range(STORIES)}
    sys.stdout.write(f"{'different journals among them':50} {len(told):8}\n")
    assert len(told) == 1


def main() -> None:
    logging.getLogger("kopf").propagate = False
    steps: list[Callable[[], None]] = [
        measure_start,
        lambda: measure_timers(posting=False),
        lambda: measure_timers(posting=True),
        measure_exploring,
        measure_stories,
    ]
    for step in steps:
        step()


if __name__ == "__main__":
    main()
