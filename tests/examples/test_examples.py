"""The examples must work as they are: those with their own demonstrations are run, the others are loaded."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.patience import PATIENCE

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"
DEMO = EXAMPLES / "ephemeral-volume-claims" / "demo.py"


def run_demo(tmp_path: pathlib.Path, source: str | None = None) -> subprocess.CompletedProcess[str]:
    folder = DEMO.parent
    if source is not None:
        folder = tmp_path
        for path in DEMO.parent.iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
        (folder / "ephemeral.py").write_text(source)
    return subprocess.run(
        [sys.executable, str(folder / "demo.py")],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_demo_succeeds(tmp_path: pathlib.Path) -> None:
    result = run_demo(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All 8 steps were as expected." in result.stdout
    assert "FAIL" not in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_demo_fails_if_the_operator_is_wrong(tmp_path: pathlib.Path) -> None:
    # An operator that ends at once, so that no time is spent on waiting for what never comes.
    result = run_demo(tmp_path, "import kopf\nraise RuntimeError('boo')\n")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "7 of 8 steps were NOT as expected." in result.stdout  # the deletion goes well without it
    assert "RuntimeError: boo" in result.stdout


@pytest.mark.parametrize("folder", sorted(path.parent for path in EXAMPLES.glob("*/crd.yaml")), ids=lambda p: p.name)
def test_manifests_are_applicable(folder: pathlib.Path) -> None:
    with LocalCluster() as cluster:
        cluster.apply(folder / "crd.yaml")
        for path in sorted(folder.glob("*.yaml"), key=lambda path: (path.name == "deployment.yaml", path.name)):
            names = [document["metadata"]["name"] for document in yaml.safe_load_all(path.read_text())]
            if all(isinstance(name, str) and "{" not in name for name in names):  # it is not a template
                cluster.apply(path)


def test_the_gallery_lists_all_examples() -> None:
    listed = re.findall(r"^\| \[`([^`]+)`\]\(([^)]+)\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    assert sorted(listed) == [(name, f"{name}/README.md") for name in folders]
