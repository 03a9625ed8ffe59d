"""One creation handler: the simplest operator that there is."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets")
async def create_fn(**_: Any) -> None:
    pass
