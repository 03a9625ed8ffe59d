"""
Runs operators under the framework of its own environment: one process for each, forked, so the imports are done once.

A line of JSON on the standard input is an operator to be started: its command line, environment, and files. The lines
of the standard output tell which process it is, and later with which code it has exited.
"""
from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import sys
from typing import Any

import yaml  # noqa: F401

import kopf.cli
from tests.differential.inside import witness

# Our framework imports the most of itself when an operator starts; the original one has done so by now.
if importlib.util.find_spec("kopf._operator") is not None:
    import kopf._operator.running


def live(job: dict[str, Any]) -> None:
    """Be the operator, until it exits."""
    os.environ.update(job["env"])
    os.chdir(job["folder"])
    sys.path.insert(0, job["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    witness.begin(job["journal"])
    kopf.cli.main(job["args"], prog_name="kopf")


def main() -> None:
    # The operators go through all that is imported here when they collect their garbage, and then they copy it.
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
            report_exits()
        if 0 in ready:
            if not (data := os.read(0, 65536)):
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                job = json.loads(line)
                if not (pid := os.fork()):
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    live(job)
                    return
                tell(job=job["id"], pid=pid)


def report_exits() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        tell(pid=pid, code=os.waitstatus_to_exitcode(status))


def tell(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
