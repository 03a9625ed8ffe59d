"""
A restarted operator: the objects are handled already, and are only to be resumed.

Nothing of it is seen in the cluster, so it reports to the pipe of the benchmark: when it begins to work, and also if
the objects are taken for new or changed ones, which is an error.
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


@kopf.on.create("bench.example.com", "v1", "widgets")
@kopf.on.update("bench.example.com", "v1", "widgets")
async def change_fn(name: str, **_: Any) -> None:
    os.write(PIPE, f"CHANGED {name}\n".encode())


@kopf.on.resume("bench.example.com", "v1", "widgets")
async def resume_fn(name: str, **_: Any) -> None:
    os.write(PIPE, f"RESUMED {name}\n".encode())
