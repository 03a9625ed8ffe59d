"""The stage of ``kopf demo``: its steps, their pace, and their promises."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable

from kopf.cli.demo.screen import Screen

TIMEOUT = 60.0
"""How long a promise may take to come true, in seconds."""

_INTERVAL = 0.05
_PAUSE = 1.8
"""The time to read a step, in seconds."""


class PromiseError(Exception):
    """The operator has not done what the show promises."""


class Stage:
    """Shows the steps, and the log lines as they come; waits for promises to come true."""

    def __init__(self, *, is_fast: bool) -> None:
        self.log: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The lines of the operators; any thread can add to it."""
        self._screen = Screen()
        self._pause = _INTERVAL if is_fast else _PAUSE
        self._steps = itertools.count(1)

    def begin_step(self, title: str) -> None:
        """Begin a step under its number and title, when the former one was read."""
        self.pause()
        self._screen.show()
        self._screen.tell(title, begin=f"{next(self._steps)}. ", fg="magenta", bold=True)

    def show(self, command: str, output: str) -> None:
        """Show a command, and its output in the whole width."""
        self._refresh()
        self._screen.tell(command)
        for line in output.splitlines():
            self._screen.show(f"   {line}", fg="cyan")

    def expect(self, promise: str, see: Callable[[], object]) -> None:
        """Wait until ``see`` gives something true; what is not there yet, can be missing. Raises `PromiseError`."""
        deadline = time.monotonic() + TIMEOUT
        while not _is_seen(see):
            self._wait(_INTERVAL)
            if time.monotonic() > deadline:
                raise PromiseError(f"The demo waited {TIMEOUT:g} seconds in vain for this step: {promise}")
        self._refresh()
        self._screen.tell(promise, begin=f"   {self._screen.symbols.mark} ", fg="green")

    def end(self, text: str, *, command: str) -> None:
        """Tell the last words, and the command to type next."""
        self._refresh()
        self._screen.show(f"\n{text}\n")
        self._screen.show(f"    {command}\n", fg="green", bold=True)

    def pause(self) -> None:
        """Give time to read."""
        self._wait(self._pause)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _INTERVAL))
            self._refresh()

    def _refresh(self) -> None:
        while not self.log.empty():
            self._screen.log(self.log.get())


def _is_seen(see: Callable[[], object]) -> bool:
    from kopf_cluster import APIStatus

    try:
        return bool(see())
    except (APIStatus, KeyError, OSError):
        return False
