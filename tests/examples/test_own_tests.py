"""The examples with tests of their own: these pass, as they are, where they are."""

from __future__ import annotations

import os
import pathlib

import pytest

from tests.examples.conftest import EXAMPLES
from tests.forging import Forge
from tests.patience import LONG_PATIENCE
from tests.ports import find_free_port

FOLDERS = sorted({path.parent for path in EXAMPLES.glob("*/test_*.py")})


@pytest.mark.timeout(2 * LONG_PATIENCE)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_their_tests_pass(folder: pathlib.Path, pytests: Forge) -> None:
    args = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "."]
    env = {**os.environ, "WEBHOOK_PORT": str(find_free_port())}
    done = pytests.run(*args, cwd=folder, env=env, timeout=LONG_PATIENCE)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
