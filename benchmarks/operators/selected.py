"""Handlers for one object of a hundred; the server is asked to select them, unless ``BENCHMARK_PUSH=no``."""

from __future__ import annotations

import os
from typing import Any

import kopf

LABELS = {"tier": "frontend"}


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.watching.push_selectors = os.environ["BENCHMARK_PUSH"] != "no"


@kopf.index("bench.example.com", "v1", "widgets", labels=LABELS)
async def index_fn(name: str, **_: Any) -> dict[str, str]:
    return {name: name}


@kopf.on.event("bench.example.com", "v1", "widgets", labels=LABELS)
async def event_fn(name: str, **_: Any) -> None:
    os.write(int(os.environ["BENCHMARK_PIPE"]), f"{name}\n".encode())
