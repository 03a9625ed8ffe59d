"""
An operator that is made to be killed: in a simulation, or as a script that forks one process after another.

As a script, it imports the modules once; then, for every line on the standard input, a process is forked that runs a
new operator and knows nothing of the previous ones. Its id is printed. The only way to end it is to kill it.

The handlers tell what they do to a journal: one line when they begin, one line when they end.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

# What the framework imports when an operator starts, is imported before: else it would be in every life anew.
import yaml  # noqa: F401

import kopf
import kopf._operator.running

HANDLERS = ("first", "second", "third", "fourth")


def declare(note: Callable[[str, str, str], None]) -> None:
    """
    Declare the handlers: of both kinds, which take some milliseconds each.

    They note that they begin or end, the name of the object, and their own name.
    """

    async def async_fn(name: str, param: str, **_: Any) -> str:
        note("begin", name, param)
        await asyncio.sleep(random.uniform(0, 0.04))
        note("end", name, param)
        return param

    def sync_fn(name: str, param: str, **_: Any) -> str:
        note("begin", name, param)
        time.sleep(random.uniform(0, 0.04))
        note("end", name, param)
        return param

    for number, id in enumerate(HANDLERS):
        kopf.on.create("kopf.dev", "kopfexamples", id=id, param=id)(sync_fn if number % 2 else async_fn)

    @kopf.on.delete("kopf.dev", "kopfexamples")
    async def delete_fn(**_: Any) -> None:
        """Nothing, but for the finalizer, which is one more thing to put at a wrong moment."""


def make_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    return settings


def live(journal: int, life: str) -> None:
    def note(event: str, name: str, param: str) -> None:
        # One write of a short line is atomic in the mode of appending.
        os.write(journal, f"{life} {name} {param} {event}\n".encode())

    random.seed(life)
    declare(note)
    kopf.configure()
    kopf.run(clusterwide=True, settings=make_settings())


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
