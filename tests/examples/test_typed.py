"""The examples with models: type checkers accept them, and their definitions are those of the code."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.cli.processes import ROOT
from tests.examples.conftest import EXAMPLES
from tests.patience import PATIENCE

HANDLERS = EXAMPLES / "typed" / "handlers.py"
MODELS = ["typed", "versions", "webapp"]


def run(folder: pathlib.Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """The example, and the example with a mistake."""
    (tmp_path / "handlers.py").write_text(HANDLERS.read_text())
    (tmp_path / "mistaken.py").write_text(HANDLERS.read_text().replace("spec.every.value", "spec.evry.value"))
    config = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}\n")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["mypy", "handlers.py", "mistaken.py"],
        ["basedpyright", "--pythonpath", sys.executable, "-p", "."],
    ],
    ids=lambda command: command[0],
)
def test_type_checkers_accept_it_and_find_the_mistake(folder: pathlib.Path, command: list[str]) -> None:
    pytest.importorskip(command[0], reason="it is not for this platform")
    found = [line for line in run(folder, *command).splitlines() if "error:" in line]
    assert found
    assert all("mistaken.py" in line for line in found), found
    assert "evry" in found[0]


@pytest.mark.parametrize("name", MODELS)
def test_definitions_are_those_of_the_code(name: str) -> None:
    assert run(EXAMPLES / name, "kopf", "crd", "handlers.py", "--check", "crd.yaml") == ""
