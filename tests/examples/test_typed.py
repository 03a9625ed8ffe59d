"""The examples with models: type checkers accept them, and their definitions are those of the code."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.cli.processes import ROOT
from tests.examples.conftest import EXAMPLES
from tests.forging import Forge
from tests.patience import LONG_PATIENCE

HANDLERS = EXAMPLES / "typed" / "handlers.py"
MODELS = ["typed", "versions", "webapp"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """The example, and the example with a mistake."""
    (tmp_path / "handlers.py").write_text(HANDLERS.read_text())
    (tmp_path / "mistaken.py").write_text(HANDLERS.read_text().replace("spec.every.value", "spec.evry.value"))
    # The framework is not checked itself, as if it were installed.
    config = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}\nfollow_imports = silent\n")
    return tmp_path


@pytest.mark.timeout(2 * LONG_PATIENCE)
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
    run = [sys.executable, "-m", *command]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=LONG_PATIENCE, check=False)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert found
    assert all("mistaken.py" in line for line in found), found
    assert "evry" in found[0]


@pytest.mark.parametrize("name", MODELS)
def test_definitions_are_those_of_the_code(name: str, forge: Forge) -> None:
    done = forge.run("crd", "handlers.py", "--check", "crd.yaml", cwd=EXAMPLES / name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
