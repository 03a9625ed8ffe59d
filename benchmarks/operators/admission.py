"""One validating and one mutating handler; the certificates and the port are in the directory of the kubeconfig."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import kopf

DIRECTORY = pathlib.Path(os.environ["KUBECONFIG"]).parent


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        port=int((DIRECTORY / "port").read_text()),
        certfile=DIRECTORY / "server.pem",
        pkeyfile=DIRECTORY / "server.key",
    )


@kopf.on.validate("bench.example.com", "v1", "widgets")
async def validate_fn(spec: kopf.Spec, warnings: list[str], **_: Any) -> None:
    if spec["phase"] != "created":
        warnings.append("It is not created yet.")


@kopf.on.mutate("bench.example.com", "v1", "widgets")
async def mutate_fn(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.spec["checked"] = True
    patch.meta.labels["phase"] = spec["phase"]
