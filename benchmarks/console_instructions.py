"""
Count the instructions that the console takes for one change of an object, and its CPU time with warm caches: with no
page open, and with one.

    .venv/bin/python -m benchmarks.console_instructions

The change is an update with prepared answers, and its echo, see `benchmarks.cycle`. As in `benchmarks.instructions`,
valgrind counts, so other load does not change it; but what is cold in a real operator takes several times longer. The
CPU time is the best of some runs without valgrind. An open page is told after every tenth change, as if there were 100
changes per second.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import subprocess
import sys

from aiohttp import web

import kopf
from benchmarks.cycle import OBJECTS, WIDGETS, Bench
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.backlog import Backlog
from kopf._insight.console.console import Console
from kopf._insight.console.updates import make_update
from kopf._insight.endpoint.console_server import AnswerError, Routes
from kopf._insight.explaining.explanation import Explanation
from kopf._insight.inspecting.decision_journal import DecisionJournal

MODES = ("silent", "closed", "open")
_FEW, _MANY = 10, 40
_TIMES = 5
_PER_UPDATE = 10
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def count_instructions(mode: str) -> float:
    """Get the instructions per change. Raises :class:`FileNotFoundError` if there is no valgrind."""
    few, many = (_count(mode, rounds) for rounds in (_FEW, _MANY))
    return (many - few) / (_MANY - _FEW) / OBJECTS


def measure_time(mode: str) -> float:
    """Get the CPU time per change, in ms."""
    few, many = (min(_time(mode, rounds) for _ in range(_TIMES)) for rounds in (_FEW, _MANY * 5))
    return (many - few) / (_MANY * 5 - _FEW) / OBJECTS * 1000


def _time(mode: str, rounds: int) -> float:
    arguments = [sys.executable, "-m", "benchmarks.console_instructions", mode, str(rounds)]
    pid = os.posix_spawn(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError("The measured process has failed.")
    return usage.ru_utime + usage.ru_stime


def _count(mode: str, rounds: int) -> int:
    process = subprocess.run(
        [*_VALGRIND, sys.executable, "-m", "benchmarks.console_instructions", mode, str(rounds)],
        env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"I *refs: *([0-9,]+)", process.stderr)
    if found is None:
        raise RuntimeError(f"No count in what valgrind has said: {process.stderr}")
    return int(found[1].replace(",", ""))


async def _change(spec: kopf.Spec, patch: kopf.Patch, **_: object) -> None:
    patch.status["phase"] = spec.get("phase")


def _declare(registry: OperatorRegistry) -> None:
    kopf.on.update(WIDGETS.plural, id="change", field="spec.phase", registry=registry)(_change)


async def _explain(request: web.BaseRequest) -> Explanation:
    raise AnswerError(f"Nobody asks for {request.path} here.")


async def _run(mode: str, rounds: int) -> None:
    logging.getLogger("kopf").setLevel(logging.WARNING)
    bench = Bench(_declare, handled=True, changed=True)
    await bench.rehearse()
    console = None
    if mode != "silent":
        backlog = Backlog(bench.observers)
        backlog.add(DecisionJournal(backlog))
        console = Console(bench.observers, backlog, Routes(), _explain)
        if mode == "open":
            console.history.watch()
    gc.disable()  # it is not of the changes
    gc.collect = lambda *_: 0  # neither are the explicit ones, before each round
    for _ in range(rounds):
        await bench.run_echoes()
        if console is not None:
            console.history.backlog.settle()
            for _ in range(OBJECTS // _PER_UPDATE if mode == "open" else 0):
                make_update(console.history.take_changes())


def main() -> None:
    counts = {mode: count_instructions(mode) for mode in MODES}
    times = {mode: measure_time(mode) for mode in MODES}
    for mode in MODES[1:]:
        instructions, time = counts[mode] - counts["silent"], times[mode] - times["silent"]
        print(f"{mode:6} {instructions / 1000:6.1f} thousand instructions per change, {time:.3f} ms")
    print(f"silent {times['silent']:.3f} ms per change")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_run(sys.argv[1], int(sys.argv[2])))
    else:
        main()
