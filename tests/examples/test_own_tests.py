"""The examples with tests of their own: these pass, as they are, where they are."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.examples.conftest import EXAMPLES
from tests.patience import PATIENCE
from tests.ports import find_free_port

FOLDERS = sorted({path.parent for path in EXAMPLES.glob("*/test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_their_tests_pass(folder: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "."],
        cwd=folder,
        env={**os.environ, "WEBHOOK_PORT": str(find_free_port())},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
