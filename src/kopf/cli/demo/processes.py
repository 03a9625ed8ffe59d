"""The operators of ``kopf demo``: processes of ``kopf run``, with their logs on the stage."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import TracebackType

import click

from kopf.cli.demo.stage import Stage

FOLDER = pathlib.Path(__file__).parent
OPERATOR = FOLDER / "shop_operator.py"

_STOPPING_TIMEOUT = 10.0


def make_command(*args: str) -> list[str]:
    """Make the command line of this ``kopf``."""
    return [sys.executable, "-P", "-m", "kopf", *args]


class OperatorProcess:
    """One running operator; it is killed in the end, if it was not stopped before."""

    def __init__(self, stage: Stage, env: Mapping[str, str], *options: str, name: str = "") -> None:
        """``name`` is that of a replica; its log lines begin with it."""
        # The stage takes the colours off where they are not wanted.
        wanted = {"FORCE_COLOR": "1", "NO_COLOR": "", "PYTHONUNBUFFERED": "1", "POD_NAME": name}
        self._log, self._prefix = stage.log, f"{name} " if name else ""
        self._process = subprocess.Popen(
            make_command("run", *options, str(OPERATOR)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **env, **wanted},
            start_new_session=True,  # Ctrl+C ends the show, which ends the operators
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.put(f"{self._prefix}{line.rstrip()}")

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        self._finish()
        self._log.put(click.style(f"{self._prefix}killed", fg="red", bold=True))

    def stop(self) -> None:
        """Let the operator finish its work, as SIGTERM does."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOPPING_TIMEOUT)
        self._finish()

    def _finish(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._finish()
