"""Real processes of the command line, as users start them, and what they have printed so far."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.forging import Forge
from tests.patience import PATIENCE

ROOT = pathlib.Path(__file__).parent.parent.parent

_SLOW = "import sys; sys.modules['uvloop'] = None; from kopf.cli import main; main(prog_name='kopf')"
"""What runs the command as if ``uvloop`` was not installed."""


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
