"""A spy for raw events. Nothing of it is seen in the cluster, so it reports to the pipe of the benchmark."""

from __future__ import annotations

import os
from typing import Any

import kopf

PIPE = int(os.environ["BENCHMARK_PIPE"])


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.event("bench.example.com", "v1", "widgets")
async def event_fn(event: kopf.RawEvent, name: str, **_: Any) -> None:
    os.write(PIPE, f"{event['type'] or 'ADDED'} {name}\n".encode())
