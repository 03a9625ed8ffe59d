"""The samples of the documentation, run as they are."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "admission.md"
SAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
BAD = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "bad"}, "spec": {"duration": 5}}


def test_testing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kubectl: str) -> None:
    """The handlers of the first sample are tested as documented."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("handlers.py").write_text(SAMPLES[0])
    pathlib.Path("crd.yaml").write_text((ROOT / "examples" / "admission" / "crd.yaml").read_text())
    pathlib.Path("bad.yaml").write_text(yaml.safe_dump(BAD))
    namespace: dict[str, Any] = {}
    exec(next(sample for sample in SAMPLES if "def test_denial" in sample), namespace)
    namespace["test_denial"](monkeypatch)
