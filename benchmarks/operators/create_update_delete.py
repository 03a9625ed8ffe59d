"""Handlers for the whole life of an object; the deletion handler brings the finalizers."""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets")
async def create_fn(**_: Any) -> None:
    pass


@kopf.on.update("bench.example.com", "v1", "widgets")
async def update_fn(**_: Any) -> None:
    pass


@kopf.on.delete("bench.example.com", "v1", "widgets")
async def delete_fn(**_: Any) -> None:
    pass
