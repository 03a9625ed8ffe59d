"""Real processes of the command line, as users start them, and what they have printed so far."""
from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

TIMEOUT = 20.0


class Process:
    """A running ``kopf`` command; killed if it is still running in the end."""

    def __init__(self, *args: str, cwd: pathlib.Path, log: pathlib.Path, env: dict[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as file:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "kopf", *args],  # as the installed command, with no current directory
                cwd=cwd, env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                process_group=0,  # as started from a terminal: Ctrl+C is for the whole group
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
            self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None,
    ) -> None:
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
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
        deadline = time.monotonic() + TIMEOUT
        while True:
            is_over = self._popen.poll() is not None
            matches = list(re.finditer(pattern, self.output, re.MULTILINE))
            if len(matches) >= times:
                return matches[-1]
            if is_over:
                raise AssertionError(f"The process has ended without {pattern!r}, exit code {self._popen.returncode}.")
            if time.monotonic() > deadline:
                raise AssertionError(f"No {pattern!r} in {TIMEOUT} seconds.")
            time.sleep(0.02)

    def press_ctrl_c(self) -> None:
        os.killpg(self._popen.pid, signal.SIGINT)

    def send_signal(self, signum: signal.Signals) -> None:
        self._popen.send_signal(signum)

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Wait until the end; get the exit code."""
        return self._popen.wait(timeout)
