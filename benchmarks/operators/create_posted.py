"""One creation handler, whose success and the end of its handling are posted as events, as by default."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.create("bench.example.com", "v1", "widgets")
async def create_fn(**_: Any) -> None:
    pass
