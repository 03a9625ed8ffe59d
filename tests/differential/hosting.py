"""The processes of both frameworks: a host for each of them, which forks the operators."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parents[2]
HOST = "tests.differential.inside.host"


@dataclasses.dataclass(eq=False)
class Process:
    """An operator that runs or has exited."""

    pid: int
    exited: asyncio.Future[int]

    def send(self, number: signal.Signals) -> None:
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def is_idle(self) -> bool:
        """Whether all its threads sleep: on a busy machine, it is waiting for a processor otherwise."""
        if self.exited.done():
            return True
        try:
            states = [
                path.read_text().rpartition(")")[2].split()[0]
                for path in pathlib.Path(f"/proc/{self.pid}/task").glob("*/stat")
            ]
        except OSError:
            return False
        return set(states) <= {"S", "Z", "X"}


class Host:
    """Runs operators under one framework."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._ids = itertools.count()
        self._starting: dict[int, asyncio.Future[Process]] = {}
        self._running: dict[int, Process] = {}
        self._is_over = False

    async def start(
        self,
        args: list[str],
        *,
        env: Mapping[str, str],
        folder: pathlib.Path,
        journal: pathlib.Path,
    ) -> Process:
        """Start ``kopf`` with these arguments in that folder."""
        assert self._process.stdin is not None
        if self._is_over:
            raise RuntimeError(f"The host of {self.name} has ended; its error is above.")
        id = next(self._ids)
        self._starting[id] = asyncio.get_running_loop().create_future()
        job = {
            "id": id,
            "args": args,
            "env": dict(env),
            "folder": str(folder),
            "journal": str(journal),
            "output": str(folder / "output.log"),
        }
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        return await self._starting[id]

    async def listen(self) -> None:
        """Hear what the host tells, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._hear(json.loads(line))
        self._is_over = True
        for starting in self._starting.values():
            starting.cancel()
        for process in self._running.values():
            process.exited.cancel()

    def _hear(self, what: dict[str, Any]) -> None:
        if "job" in what:
            process = Process(what["pid"], asyncio.get_running_loop().create_future())
            self._running[what["pid"]] = process
            self._starting.pop(what["job"]).set_result(process)
        elif (known := self._running.pop(what["pid"], None)) is not None:
            known.exited.set_result(what["code"])

    def kill_all(self) -> None:
        for process in self._running.values():
            process.send(signal.SIGKILL)


@contextlib.asynccontextmanager
async def run_host(name: str, python: str) -> AsyncIterator[Host]:
    """Run the host with the interpreter of the environment where the framework is installed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KUBE", "KOPF"))}
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        HOST,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # The order of sets depends on it, so it is a matter of luck whether a difference is seen.
        env={**env, "PYTHONHASHSEED": os.environ.get("DIFFERENTIAL_HASH_SEED", "0"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    host = Host(name, process)
    listening = asyncio.create_task(host.listen())
    try:
        yield host
    finally:
        host.kill_all()
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()
        await listening


def get_original_python() -> str | None:
    """The interpreter of the environment of the original framework, if it is installed."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    default = ROOT / f".venv-original-{version}" / "bin" / "kopf"
    kopf = pathlib.Path(os.environ.get("KOPF_ORIGINAL") or default)
    return str(kopf.parent / "python") if kopf.exists() else None


def get_own_python() -> str:
    return sys.executable
