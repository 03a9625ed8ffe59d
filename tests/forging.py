"""
Commands of Python that start fast: as forks of one process, which has imported everything.

That takes most of the time of short commands. What happens in the process is told in :mod:`tests.forking`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parent.parent


class Forge:
    """Starts commands as forks of one process, which has imported everything: that takes most of their time."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._ids = itertools.count()
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._pending = b""

    def run(
        self,
        *args: str | pathlib.Path,
        cwd: pathlib.Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end with exactly these variables; by default, with those of the tests."""
        with tempfile.TemporaryDirectory() as folder:
            output, errors = (pathlib.Path(folder, name) for name in ("output", "errors"))
            fork = self.start(
                *map(str, args),
                cwd=cwd or pathlib.Path.cwd(),
                env=os.environ if env is None else env,
                output=str(output),
                errors=str(errors),
            )
            try:
                code = fork.wait(timeout)
            finally:
                fork.kill()
            return subprocess.CompletedProcess(args, code, output.read_text(), errors.read_text())

    def start(
        self, *args: str, cwd: pathlib.Path, env: Mapping[str, str], output: str, errors: str | None = None
    ) -> Fork:
        """Start the command with exactly these variables; what it writes, goes to these files or that terminal."""
        assert self._popen.stdin is not None
        id = next(self._ids)
        job = {"id": id, "args": args, "env": dict(env), "folder": str(cwd), "output": output}
        job["errors"] = errors or output
        self._popen.stdin.write(json.dumps(job).encode() + b"\n")
        self._popen.stdin.flush()
        while id not in self._pids:
            self._listen(PATIENCE)
        return Fork(self, self._pids.pop(id))

    def find_code(self, pid: int, timeout: float) -> int | None:
        """Get the exit code as soon as there is one, or nothing if there is none for so long."""
        deadline = time.monotonic() + timeout
        while pid not in self._codes and self._listen(max(0.0, deadline - time.monotonic())):
            pass
        return self._codes.get(pid)

    def _listen(self, timeout: float) -> bool:
        assert self._popen.stdout is not None
        ready, _, _ = select.select([self._popen.stdout], [], [], timeout)
        if not ready:
            return False
        data = os.read(self._popen.stdout.fileno(), 65536)
        assert data, "The process that forks has ended; its error is above."
        *lines, self._pending = (self._pending + data).split(b"\n")
        for what in map(json.loads, lines):
            if "job" in what:
                self._pids[what["job"]] = what["pid"]
            else:
                self._codes[what["pid"]] = what["code"]
        return True


class Fork:
    """A running command; used as ``subprocess.Popen``."""

    def __init__(self, forge: Forge, pid: int) -> None:
        self.pid = pid
        self._forge = forge

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._forge.find_code(self.pid, 0)

    def wait(self, timeout: float = PATIENCE) -> int:
        code = self._forge.find_code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, signum: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it with all that it has started, if it still runs."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()


@contextlib.contextmanager
def run_forge(module: str) -> Iterator[Forge]:
    """Run the process that the commands are forked from."""
    with subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        process_group=0,
    ) as popen:
        yield Forge(popen)
