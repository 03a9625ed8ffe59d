"""Real processes of the command line, as users start them, and what they have printed so far."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parent.parent.parent

_SLOW = "import sys; sys.modules['uvloop'] = None; from kopf.cli import main; main(prog_name='kopf')"
"""What runs the command as if ``uvloop`` was not installed."""


class Forge:
    """Starts commands as forks of one process, which has imported everything: that takes most of their time."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._ids = itertools.count()
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._pending = b""

    def start(self, *args: str, cwd: pathlib.Path, env: Mapping[str, str], output: str) -> Fork:
        """Start the command with exactly these variables; its output goes to that file or terminal."""
        assert self._popen.stdin is not None
        id = next(self._ids)
        job = {"id": id, "args": args, "env": dict(env), "folder": str(cwd), "output": output}
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


@contextlib.contextmanager
def run_forge() -> Iterator[Forge]:
    """Run the process that the commands are forked from."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forked"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        process_group=0,
    ) as popen:
        yield Forge(popen)


def _copy(master: int, log: pathlib.Path) -> None:
    """Copy all that is shown on the terminal, until nobody has it open."""
    is_over = contextlib.suppress(OSError)  # it is how Linux tells of the end
    with log.open("ab", buffering=0) as file, os.fdopen(master, "rb", buffering=0) as terminal, is_over:
        while data := terminal.read(65536):
            file.write(data.replace(b"\r\n", b"\n"))


def is_slow(env: Mapping[str, str]) -> bool:
    """Whether the operator takes the event loop of Python, though there is the one of ``uvloop``."""
    return env.get("KOPF_TEST_LOOP") == "asyncio"


class Process:
    """A running ``kopf`` command, a process from the very beginning or a fork; killed if it still runs in the end."""

    def __init__(
        self,
        *args: str,
        cwd: pathlib.Path,
        log: pathlib.Path,
        env: dict[str, str] | None = None,
        terminal: bool = False,
        forge: Forge | None = None,
    ) -> None:
        self._log = log
        self._reader: threading.Thread | None = None
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        with log.open("wb") as file, contextlib.ExitStack() as stack:
            output = file.fileno()
            if terminal:
                master, output = pty.openpty()
                stack.callback(os.close, output)
                self._reader = threading.Thread(target=_copy, args=(master, log))
            self._popen = (
                subprocess.Popen(
                    # As the installed command: with no current directory.
                    [sys.executable, "-P", *(["-c", _SLOW] if is_slow(variables) else ["-m", "kopf"]), *args],
                    cwd=cwd,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    process_group=0,  # as started from a terminal: Ctrl+C is for the whole group
                )
                if forge is None
                else forge.start(*args, cwd=cwd, env=variables, output=os.ttyname(output) if terminal else str(log))
            )
        if self._reader is not None:
            self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        if self._reader is not None:
            self._reader.join()
        if exc is not None:
            exc.add_note(f"The output of the process:\n{self.output}")

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """Wait until the pattern appears in the output, for that many times; get the last match."""
        deadline = time.monotonic() + PATIENCE
        while True:
            is_over = self._popen.poll() is not None
            matches = list(re.finditer(pattern, self.output, re.MULTILINE))
            if len(matches) >= times:
                return matches[-1]
            if is_over:
                raise AssertionError(f"The process has ended without {pattern!r}, exit code {self._popen.returncode}.")
            if time.monotonic() > deadline:
                raise AssertionError(f"No {pattern!r} in {PATIENCE} seconds.")
            time.sleep(0.02)

    def press_ctrl_c(self) -> None:
        os.killpg(self._popen.pid, signal.SIGINT)

    def send_signal(self, signum: signal.Signals) -> None:
        self._popen.send_signal(signum)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait until the end; get the exit code."""
        return self._popen.wait(timeout)

    def stop(self) -> int:
        """Ask it to exit, as Kubernetes does; get the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()
