"""
An operator that is made to be killed: run as a script by the chaos tests.

The modules are imported once; then, for every line on the standard input, a process is forked that runs a new
operator and knows nothing of the previous ones. Its id is printed. The only way to end it is to kill it.

The handlers tell what they do to a journal: one line when they begin, one line when they end.
"""
from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import Any

# What the framework imports when an operator starts, is imported before: else it would be in every life anew.
import yaml  # noqa: F401

import kopf
import kopf._operator.running

HANDLERS = ("first", "second", "third", "fourth")


def declare(journal: int, life: str) -> None:
    """Declare the handlers of one life: of both kinds, which take some milliseconds each."""
    def note(event: str, name: str, param: str, retry: int) -> None:
        # One write of a short line is atomic in the mode of appending.
        os.write(journal, f"{life} {name} {param} {retry} {event}\n".encode())

    async def async_fn(name: str, param: str, retry: int, **_: Any) -> str:
        note("begin", name, param, retry)
        await asyncio.sleep(random.uniform(0, 0.04))
        note("end", name, param, retry)
        return f"{param} in {life}"

    def sync_fn(name: str, param: str, retry: int, **_: Any) -> str:
        note("begin", name, param, retry)
        time.sleep(random.uniform(0, 0.04))
        note("end", name, param, retry)
        return f"{param} in {life}"

    for number, id in enumerate(HANDLERS):
        kopf.on.create("kopf.dev", "kopfexamples", id=id, param=id)(sync_fn if number % 2 else async_fn)

    @kopf.on.delete("kopf.dev", "kopfexamples")
    async def delete_fn(**_: Any) -> None:
        """Nothing, but for the finalizer, which is one more thing to put at a wrong moment."""


def live(journal: int, life: str) -> None:
    random.seed(life)
    declare(journal, life)
    kopf.configure()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    kopf.run(clusterwide=True, settings=settings)


def main(path: str) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            live(journal, line.strip())
            os._exit(1)  # it is never to end by itself
        os.write(sys.stdout.fileno(), b"%d\n" % pid)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1])
