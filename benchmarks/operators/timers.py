"""
A timer on every object: it ticks once, and then sleeps for an hour.
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


@kopf.timer("bench.example.com", "v1", "widgets", interval=3600)
async def tick(name: str, **_: Any) -> None:
    os.write(PIPE, f"TICK {name}\n".encode())
