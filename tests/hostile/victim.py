"""The operator that is attacked; it is run by the tests, with few descriptors."""

from __future__ import annotations

import os
from typing import Any

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", port=int(os.environ["WEBHOOK_PORT"]), cadump=os.environ["CADUMP"]
    )


@kopf.on.validate("kopfexamples")
def check(spec: kopf.Spec, **_: Any) -> None:
    if spec.get("x") == "bad":
        raise kopf.AdmissionError("It is bad.", code=400)


@kopf.on.create("kopfexamples")
async def create(**_: Any) -> str:
    return "done"
