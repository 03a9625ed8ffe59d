"""
An index of all objects. Other handlers begin only when everything is indexed, so the last object reports it.
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


@kopf.index("bench.example.com", "v1", "widgets")
async def by_image(name: str, spec: kopf.Spec, **_: Any) -> dict[str, str]:
    return {spec["containers"][0]["image"]: name}


@kopf.on.event("bench.example.com", "v1", "widgets", labels={"tier": "last"})
async def event_fn(name: str, **_: Any) -> None:
    os.write(PIPE, f"SEEN {name}\n".encode())
