"""
The operator of the replicas that are besieged: it stamps all that it does with an object into one journal.

A stamp is a line: the time (monotonic, of the machine), the replica, the object, the call, what it is, and details. A
file that is opened for appending takes whole lines from several processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import kopf

GROUP, VERSION, PLURAL = "replicas.example.com", "v1", "samples"
FOLDER = pathlib.Path(os.environ["REPLICAS_FOLDER"])
REPLICA = os.environ["POD_NAME"]
LEASE = int(os.environ["REPLICAS_LEASE"])

_journal = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_numbers = itertools.count(1)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    pathlib.Path(FOLDER / f"{REPLICA}.started").touch()
    settings.posting.enabled = False
    settings.watching.inactivity_timeout = 4 * LEASE
    settings.networking.request_timeout = 2 * LEASE
    settings.networking.error_backoffs = [0.1, 0.2, 0.5, 1, 1, 1, 2, 2, 2]
    settings.queueing.error_delays = [0.1, 0.5, 1, 2]
    coordination = settings.coordination
    coordination.lease_duration = LEASE
    coordination.renew_deadline = LEASE * 2 / 3
    coordination.retry_period = LEASE / 7
    coordination.drain_timeout = LEASE


def stamp(name: str, call: str, what: str, details: object = "") -> None:
    line = f"{time.clock_gettime(time.CLOCK_MONOTONIC):.6f} {REPLICA} {name} {call} {what} {details}\n"
    os.write(_journal, line.encode())


@contextlib.contextmanager
def in_hand(name: str, kind: str, details: object) -> Iterator[str]:
    """Stamp the beginning and the end; the end of what is cancelled, is no deed of the replica."""
    call = f"{kind}-{REPLICA}-{os.getpid()}-{next(_numbers)}"
    stamp(name, call, "begin", f"{kopf.fencing_token()} {details}")
    try:
        yield call
    except BaseException as e:
        stamp(name, call, "interrupted", type(e).__name__)
        raise
    stamp(name, call, "end", details)


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL)
async def handle(name: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    with in_hand(name, "change", spec["value"]) as call:
        for _step in range(spec["steps"]):
            await asyncio.sleep(0.1)
            stamp(name, call, "step")
        patch.status["seen"] = spec["value"]


@kopf.on.delete(GROUP, VERSION, PLURAL)
async def delete(name: str, **_: Any) -> None:
    with in_hand(name, "deletion", "") as call:
        await asyncio.sleep(0.1)
        stamp(name, call, "step")


@kopf.daemon(GROUP, VERSION, PLURAL, labels={"daemonic": "true"})
async def live(name: str, stopped: kopf.Stopped, **_: Any) -> None:
    with in_hand(name, "daemon", "") as call:
        while not stopped:
            stamp(name, call, "step")
            await stopped.wait(0.5)


@kopf.timer(GROUP, VERSION, PLURAL, interval=2, labels={"ticking": "true"})
async def tick(name: str, **_: Any) -> None:
    with in_hand(name, "tick", ""):
        await asyncio.sleep(0.05)
