"""
Processes that are measured: the local cluster, and an operator under either of the frameworks.

CPU is the user and system time of the process, memory is what is resident: both as the operating system counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import psutil

OPERATORS = pathlib.Path(__file__).parent / "operators"

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 20.0


@dataclasses.dataclass(frozen=True)
class Framework:
    """What runs the operators: a distribution installed for some interpreter."""

    name: str
    python: pathlib.Path
    options: Sequence[str] = ()
    """What is added to the command that runs the operators."""


class Meter:
    """Tells how much a process has consumed since its start."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = psutil.Process(pid)
        self._status = pathlib.Path(f"/proc/{pid}/status")

    @property
    def cpu(self) -> float:
        """The consumed CPU time, in seconds."""
        times = self._process.cpu_times()
        return times.user + times.system

    @property
    def memory(self) -> float:
        """The resident memory, in KiB."""
        return self._process.memory_info().rss / 1024

    @property
    def peak(self) -> float:
        """The highest resident memory, in KiB."""
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return float(lines["VmHWM"].split()[0])


class Pipe:
    """What the handlers report to the benchmark by themselves, line by line."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator[asyncio.StreamReader]:
        """Read the reports; the pipe is closed in the end."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        file = os.fdopen(self._reading, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
        try:
            yield reader
        finally:
            transport.close()
            os.close(self.writing)


@contextlib.asynccontextmanager
async def running_cluster(kubeconfig: pathlib.Path, gates: Sequence[str] = ()) -> AsyncIterator[Meter]:
    """Run a new local cluster, with these features turned on; it serves when the context is entered."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.cluster", str(kubeconfig), *gates, stdout=asyncio.subprocess.PIPE
    )
    try:
        if process.stdout is None or not await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT):
            raise RuntimeError("The local cluster has not started; see its errors above.")
        yield Meter(process.pid)
    finally:
        await _stop(process)


@contextlib.asynccontextmanager
async def running_operator(
    framework: Framework,
    file: pathlib.Path,
    *,
    kubeconfig: str | pathlib.Path,
    pipe: Pipe,
    log: pathlib.Path,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Meter]:
    """Run the operator as users do; its output goes to the log file."""
    variables: Mapping[str, str] = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KOPF", "KUBE"))},
        "KUBECONFIG": str(kubeconfig),
        "BENCHMARK_PIPE": str(pipe.writing),
        **(environ or {}),
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(framework.python), "-m", "kopf", "run", "--all-namespaces", "--standalone", *framework.options,
            *options, str(file),
            env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[pipe.writing],
        )  # fmt: skip
    try:
        yield Meter(process.pid)
        if process.returncode is not None:
            raise RuntimeError(f"The operator has exited with the code {process.returncode}.")
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()
