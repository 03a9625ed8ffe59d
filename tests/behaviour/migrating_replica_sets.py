"""
An operator of ReplicaSets that is run by both frameworks; see ``migrating`` for what it is made for.

Who has called a handler, is told by annotations: unknown fields of the status are not kept for kinds with schemas.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

WHO = os.environ.get("MIGRATION_WHO", "ours")
IS_HOLDING = os.environ.get("MIGRATION_HOLDING", "") == "yes"


@kopf.on.startup()
async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("apps", "v1", "replicasets", id="first", param="first")
@kopf.on.create("apps", "v1", "replicasets", id="second", param="second")
async def fn(param: str, patch: kopf.Patch, **_: Any) -> None:
    if IS_HOLDING and param == "second":
        raise kopf.TemporaryError("held", delay=1)
    patch.metadata.annotations[f"called.example.com/{param}"] = WHO
