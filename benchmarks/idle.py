"""
Measure what an operator takes before it has anything to do: its memory, the CPU of its start, and its modules.

    .venv/bin/python -m benchmarks.idle

The operator is run as users run it, on a local cluster with one custom resource and no objects; with ``uvloop`` (if it
is installed) and without it. *Own* memory is what is not mapped from files: the rest is shared with other processes of
the same Python. The commands that only print something are measured by the CPU of a process, the least of several.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.processes import Framework, Meter, Pipe, running_cluster, running_operator

SETTLING = 5.0
"""How long the operator is left alone before it is looked at, in seconds."""

ROUNDS = 5
COMMANDS = (["--version"], ["--help"], ["run", "--help"])

_OPERATOR = """
import os, sys
import kopf

@kopf.on.create("widgets")
def create_fn(**_):
    pass

@kopf.on.startup()
def startup_fn(**_):
    os.write(int(os.environ["BENCHMARK_PIPE"]), f"{len(sys.modules)}\\n".encode())
"""

_WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None\n"
"""As ``sitecustomize``: the command line does not find it then, as if it were not installed."""


@dataclasses.dataclass(frozen=True)
class Idle:
    """What an idle operator takes: CPU in seconds, memory in MiB."""

    loop: str
    cpu: float
    memory: float
    own_memory: float
    modules: int


async def measure_operator(folder: pathlib.Path, kubeconfig: pathlib.Path, *, with_uvloop: bool) -> Idle:
    """Run an operator with nothing to do, and look at it when it has settled."""
    file, pipe = folder / "operator_file.py", Pipe()
    file.write_text(_OPERATOR)
    log = folder / "operator.log"
    python = pathlib.Path(sys.executable)
    if not with_uvloop:
        python = _make_python_without_uvloop(folder)
    async with (
        pipe.reader() as reader,
        running_operator(Framework("kopf", python), file, kubeconfig=kubeconfig, pipe=pipe, log=log) as meter,
    ):
        modules = int(await asyncio.wait_for(reader.readline(), 30))
        await asyncio.sleep(SETTLING)
        return Idle("uvloop" if with_uvloop else "asyncio", meter.cpu, meter.memory / 1024, _get_own(meter), modules)


def _make_python_without_uvloop(folder: pathlib.Path) -> pathlib.Path:
    """Make a command that runs Python as if there were no uvloop."""
    (folder / "sitecustomize.py").write_text(_WITHOUT_UVLOOP)
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    command.chmod(0o700)
    return command


def _get_own(meter: Meter) -> float:
    lines = pathlib.Path(f"/proc/{meter.pid}/status").read_text().splitlines()
    return float(dict(line.split(":", 1) for line in lines)["RssAnon"].split()[0]) / 1024


def measure_command(args: Sequence[str]) -> float:
    """Run the command several times; give the least CPU that it has taken, in seconds."""
    taken = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "kopf", *args], check=True, stdout=subprocess.DEVNULL, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


async def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # compilation is not what is measured
    for args in COMMANDS:
        print(f"kopf {' '.join(args):<16} {measure_command(args):6.3f} s of CPU")
    loops = [False, True] if importlib.util.find_spec("uvloop") else [False]
    with tempfile.TemporaryDirectory(prefix="kopf-benchmark-") as name:
        folder = pathlib.Path(name)
        kubeconfig = folder / "kubeconfig.yaml"
        async with running_cluster(kubeconfig):
            for with_uvloop in loops:
                idle = await measure_operator(folder, kubeconfig, with_uvloop=with_uvloop)
                print(
                    f"idle, {idle.loop:<16} {idle.memory:6.1f} MiB, of them own {idle.own_memory:.1f} MiB; "
                    f"{idle.modules} modules; {idle.cpu:.2f} s of CPU to start"
                )


if __name__ == "__main__":
    asyncio.run(main())
