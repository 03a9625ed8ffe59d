"""The operator that is soaked: every kind of handler, and marks on the objects of what was handled."""

from __future__ import annotations

import os
import pathlib
import random
from typing import Any

import kopf

GROUP, VERSION, PLURAL = "soak.example.com", "v1", "samples"
PACE = float(os.environ["SOAK_PACE"])
"""How much slower than in the shortest run everything is, e.g. how often objects are changed, or tokens expire."""


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    pathlib.Path(f"{os.getpid()}.started").touch()
    settings.watching.inactivity_timeout = 3 * PACE
    settings.watching.reconnect_backoff = 0.1
    settings.peering.lifetime = 6
    settings.networking.error_backoffs = [0.1, 0.2, 0.5, 1, 1, 1, 2, 2, 2]


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL)
async def handle(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    if random.random() < 0.05:
        raise kopf.TemporaryError("Not now.", delay=0.2)
    patch.status["seen"] = spec["value"]


@kopf.on.delete(GROUP, VERSION, PLURAL)
def delete(**_: Any) -> None:
    if random.random() < 0.05:
        raise kopf.TemporaryError("Not now.", delay=0.2)


@kopf.index(GROUP, VERSION, PLURAL)
def by_value(name: str, spec: kopf.Spec, **_: Any) -> dict[int, str]:
    return {spec["value"]: name}


@kopf.on.event(GROUP, VERSION, PLURAL)
def watch(by_value: kopf.Index[int, str], **_: Any) -> None:
    len(by_value)


@kopf.timer(GROUP, VERSION, PLURAL, interval=1, labels={"ticking": "true"})
async def tick(patch: kopf.Patch, retry: int, status: kopf.Status, **_: Any) -> None:
    if status.get("ticked", 0) < 3:
        patch.status["ticked"] = status.get("ticked", 0) + 1


@kopf.daemon(GROUP, VERSION, PLURAL, labels={"daemonic": "true"})
async def live(stopped: Any, **_: Any) -> None:
    await stopped.wait()


@kopf.daemon(GROUP, VERSION, PLURAL, labels={"threaded": "true"})
def live_in_thread(stopped: Any, **_: Any) -> None:
    while not stopped:
        stopped.wait(1)
