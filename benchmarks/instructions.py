"""
Count the instructions of a creation with prepared answers, and its echo, see `benchmarks.cycle`: with metrics or not.

It is done by valgrind, in processes with few and with many rounds: the difference is of the rounds alone. Other load
does not change it, but it knows nothing of caches; what is cold in a real operator takes longer than it seems here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import subprocess
import sys

from benchmarks.cycle import OBJECTS, Bench, declare_creation
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._settings.settings import OperatorSettings

_FEW, _MANY = 5, 35
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def count_instructions(*, is_heard: bool) -> float:
    """Get the instructions per object. Raises :class:`FileNotFoundError` if there is no valgrind."""
    few, many = (_count(is_heard, rounds) for rounds in (_FEW, _MANY))
    return (many - few) / (_MANY - _FEW) / OBJECTS


def _count(is_heard: bool, rounds: int) -> int:
    process = subprocess.run(
        [*_VALGRIND, sys.executable, "-m", "benchmarks.instructions", "heard" if is_heard else "silent", str(rounds)],
        env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"I *refs: *([0-9,]+)", process.stderr)
    if found is None:
        raise RuntimeError(f"No count in what valgrind has said: {process.stderr}")
    return int(found[1].replace(",", ""))


async def _run(is_heard: bool, rounds: int) -> None:
    logging.getLogger("kopf").setLevel(logging.WARNING)
    bench, registry = Bench(declare_creation), OperatorRegistry()
    declare_creation(registry)
    metrics = Metrics(bench.observers, registry, OperatorSettings()) if is_heard else None
    await bench.rehearse()
    gc.disable()  # it is not of the creations
    gc.collect = lambda *_: 0  # neither are the explicit ones, before each round
    for _ in range(rounds):
        await bench.run_cycles()
    if metrics is not None and not metrics.read():
        raise RuntimeError("Nothing was measured.")


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1] == "heard", int(sys.argv[2])))
