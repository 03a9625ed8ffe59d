"""One synchronous creation handler: each object is handled in a thread."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets")
def create_fn(**_: Any) -> None:
    pass
