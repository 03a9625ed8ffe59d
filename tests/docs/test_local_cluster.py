"""The page about the local cluster is for those who see it for the first time: all that it shows works as it is."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.docs.conftest import ROOT, get_blocks
from tests.forging import Forge
from tests.patience import PATIENCE

PAGE = ROOT / "docs" / "local-cluster.md"
PREVIOUS = ROOT / "docs" / "getting-started.md"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """The files that readers have from the page before."""
    crd, obj = get_blocks(PREVIOUS, "yaml")
    (tmp_path / "crd.yaml").write_text(crd)
    (tmp_path / "obj.yaml").write_text(obj)
    (tmp_path / "handlers.py").write_text(get_blocks(PREVIOUS, "python")[0])
    return tmp_path


def test_all_tests_of_the_page_succeed(folder: pathlib.Path, pytests: Forge) -> None:
    samples = "\n".join(get_blocks(PAGE, "python"))
    (folder / "test_page.py").write_text(samples)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    result = pytests.run("-q", "-p", "no:cacheprovider", "test_page.py", cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    count = len(re.findall(r"^(?:async )?def test_", samples, re.MULTILINE))
    assert f"{count} passed" in result.stdout


def test_the_commands_of_the_page_succeed(folder: pathlib.Path, kubectl: str) -> None:
    serve, use = get_blocks(PAGE, "shell")
    programs = [str(pathlib.Path(sys.executable).parent), str(pathlib.Path(kubectl).parent), os.environ["PATH"]]
    env = {**os.environ, "PATH": os.pathsep.join(programs), "HOME": str(folder)}
    server = subprocess.Popen(f"exec {serve}", shell=True, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    try:
        while not (folder / "local.yaml").exists():
            assert server.poll() is None
            time.sleep(0.01)
        shown = subprocess.run(["bash", "-ec", use], cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert "customresourcedefinition.apiextensions.k8s.io/kopfexamples.kopf.dev created" in shown.stdout
        assert "namespace/default" in shown.stdout
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0
    assert not (folder / "local.yaml").exists()
