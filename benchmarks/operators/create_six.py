"""Six creation handlers: the progress is kept on the object after each of them."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets", id="first")
@kopf.on.create("bench.example.com", "v1", "widgets", id="second")
@kopf.on.create("bench.example.com", "v1", "widgets", id="third")
@kopf.on.create("bench.example.com", "v1", "widgets", id="fourth")
@kopf.on.create("bench.example.com", "v1", "widgets", id="fifth")
@kopf.on.create("bench.example.com", "v1", "widgets", id="sixth")
async def create_fn(**_: Any) -> None:
    pass
