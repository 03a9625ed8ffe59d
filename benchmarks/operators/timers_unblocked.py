"""A timer on every object, which stays in memory, but without finalizers: nothing is written to the objects."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.timer("bench.example.com", "v1", "widgets", interval=3600, initial_delay=3600, optional=True)
async def tick(**_: Any) -> None:
    pass
