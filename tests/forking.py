"""
A process that forks others when it is told to: what all of them import, is imported once.

A line of JSON on its standard input is a process to be started. The lines of its standard output tell which process it
is, and later with which code it has exited. It ends with its input.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Job: TypeAlias = dict[str, Any]
"""
The ``id``, the ``folder`` to be in, the file or terminal for the ``output`` and for the ``errors`` (the same one, if it
is not given); the rest is for who lives there.
"""


def serve(live: Callable[[Job], object]) -> None:
    """Fork the processes, each of which does this."""
    # The processes go through all that is imported here when they collect their garbage, and then they copy it.
    gc.collect()
    gc.freeze()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    pending = b""
    while True:
        ready, _, _ = select.select([0, reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            _report_exits()
        if 0 in ready:
            if not (data := os.read(0, 65536)):
                return
            *lines, pending = (pending + data).split(b"\n")
            for job in map(json.loads, lines):
                outputs = [_open(job["output"]), _open(job.get("errors", job["output"]))]
                if not (pid := os.fork()):
                    _begin(job, outputs)
                    _live_to_the_end(live, job)
                    return
                for output in outputs:
                    os.close(output)
                os.setpgid(pid, pid)  # before anybody sends signals to it
                _tell(job=job["id"], pid=pid)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOCTTY)


def _begin(job: Job, outputs: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)  # before it starts any others; as if started from a terminal: Ctrl+C is for the whole group
    os.chdir(job["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)


def _live_to_the_end(live: Callable[[Job], object], job: Job) -> None:
    """
    Exit as the interpreter does, but for the modules: it would clear, and thus copy, all that they have in common.

    That takes three quarters of a short process. What ends by an exception or a signal, ends in the usual way.
    """
    code: object = None
    try:
        live(job)
    except SystemExit as exc:
        code = exc.code
    if code is None or isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]  # it waits for the threads; known to Python, not to stubs
        atexit._run_exitfuncs()
        gc.collect()  # what complains when it is forgotten, does so
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((code or 0) & 0xFF)
    raise SystemExit(code)


def _report_exits() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(pid=pid, code=os.waitstatus_to_exitcode(status))


def _tell(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")
