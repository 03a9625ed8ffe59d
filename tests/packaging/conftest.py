"""What the commands are tried with."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import textwrap
from collections.abc import Callable

import pytest

from tests.forging import ROOT, Forge

Kopf = Callable[..., subprocess.CompletedProcess[str]]

CRD = ROOT / "examples" / "deployment" / "crd.yaml"

HANDLERS = """
    import kopf

    kopf.needs("secrets", verbs=["get"])

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_):
        print("It is configured.")
        settings.admission.managed = "auto.kopf.dev"
        settings.admission.server = kopf.WebhookServiceServer("hooks")

    @kopf.on.startup()
    def connect(**_):
        raise Exception("There is no database here.")

    @kopf.on.create("kopfexamples")
    def create_fn(**_):
        return "done"

    @kopf.on.validate("kopfexamples")
    def validate_fn(**_):
        ...

    @kopf.daemon("kopfexamples", cancellation_timeout=100)
    def daemon_fn(**_):
        ...
"""


@pytest.fixture
def handlers(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "packaged_handlers.py"
    path.write_text(textwrap.dedent(HANDLERS))
    return path


@pytest.fixture
def kopf_command(tmp_path: pathlib.Path, forge: Forge) -> Kopf:
    """Run a command as a process, as it loads files."""
    return functools.partial(forge.run, cwd=tmp_path)
