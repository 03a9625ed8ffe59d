"""The official client of JavaScript, ``@kubernetes/client-node``: its rounds are in the script beside."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from kopf.testing import LocalCluster
from tests.conftest import NODE_MISSING
from tests.downloads import get_client_node
from tests.patience import PATIENCE

SCRIPT = pathlib.Path(__file__).parent / "rounds_of_client_node.mjs"


def test_rounds(cluster: LocalCluster) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip(NODE_MISSING)
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "CLIENT_NODE": str(get_client_node())}
    done = subprocess.run(
        [node, "--test-reporter=tap", SCRIPT],
        env=env,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[0]) >= 7, done.stdout
