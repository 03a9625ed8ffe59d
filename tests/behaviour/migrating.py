"""
An operator that is run by both frameworks, the original one and this one: one begins, the other one finishes.

It stops in the middle of everything: the handlers listed in ``spec.hold`` are retried until they are called by the
other framework. The results tell which framework has called them. The storages are chosen by the environment.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

WHO = os.environ.get("MIGRATION_WHO", "ours")
IS_HOLDING = os.environ.get("MIGRATION_HOLDING", "") == "yes"
STORAGE = os.environ.get("MIGRATION_STORAGE", "default")
PREFIX = "migrating.example.com"


def configure(settings: kopf.OperatorSettings) -> None:
    """Choose the storages."""
    settings.posting.enabled = False
    match STORAGE:
        case "prefixed":
            settings.persistence.finalizer = f"{PREFIX}/finalizer"
            settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
            settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=PREFIX)
        case "status":
            settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.migrating.progress")
            settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.migrating.base")
        case "multi":
            settings.persistence.progress_storage = kopf.MultiProgressStorage(
                [
                    kopf.AnnotationsProgressStorage(prefix=PREFIX),
                    kopf.StatusProgressStorage(),
                ]
            )
            settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage(
                [
                    kopf.AnnotationsDiffBaseStorage(prefix=PREFIX),
                    kopf.StatusDiffBaseStorage(),
                ]
            )


@kopf.on.startup()
async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
    configure(settings)


def act(name: str, spec: kopf.Spec) -> str:
    if IS_HOLDING and name in spec.get("hold", []):
        raise kopf.TemporaryError("held", delay=1)
    return WHO


@kopf.on.create("kopf.dev", "kopfexamples", id="first", param="first")
@kopf.on.create("kopf.dev", "kopfexamples", id="second", param="second")
@kopf.on.create("kopf.dev", "kopfexamples", id="a-long-id/" + "x" * 60, param="long")
@kopf.on.update("kopf.dev", "kopfexamples", id="update-first", param="update-first")
@kopf.on.update("kopf.dev", "kopfexamples", id="update-second", param="update-second")
@kopf.on.delete("kopf.dev", "kopfexamples", id="delete-first", param="delete-first")
@kopf.on.delete("kopf.dev", "kopfexamples", id="delete-second", param="delete-second")
async def fn(param: str, spec: kopf.Spec, **_: Any) -> str:
    return act(param, spec)


@kopf.on.create("kopf.dev", "kopfexamples", labels={"parent": "yes"})
@kopf.on.update("kopf.dev", "kopfexamples", labels={"parent": "yes"})
async def parent(spec: kopf.Spec, **_: Any) -> str:
    for name in ("sub-first", "sub-second"):

        @kopf.subhandler(id=name, param=name)
        async def sub(param: str, spec: kopf.Spec, **_: Any) -> str:
            return act(param, spec)

    return WHO
