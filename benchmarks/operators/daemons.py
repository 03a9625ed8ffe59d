"""
A daemon on every object: it reports, and then waits until it is told to stop.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

PIPE = int(os.environ["BENCHMARK_PIPE"])


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    os.write(PIPE, f"STARTED {os.getpid()}\n".encode())


@kopf.daemon("bench.example.com", "v1", "widgets")
async def wait(name: str, stopped: Any, **_: Any) -> None:
    os.write(PIPE, f"SPAWNED {name}\n".encode())
    await stopped.wait()
