"""The example of testing: its own tests pass, in seconds."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from tests.patience import PATIENCE
from tests.ports import find_free_port

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "testing"


def test_its_tests_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "."],
        cwd=EXAMPLE, env={**os.environ, "WEBHOOK_PORT": str(find_free_port())}, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
