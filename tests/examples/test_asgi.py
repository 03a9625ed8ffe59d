"""The example of a web application with an operator inside: they live and die together."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from kopf.testing import LocalCluster
from tests.patience import PATIENCE
from tests.ports import find_free_port

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "asgi"


@pytest.fixture
def port() -> int:
    return find_free_port()


@contextlib.contextmanager
def serving(port: int, kubeconfig: pathlib.Path, log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLE), "app:app", "--port", str(port)]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(log.parent)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_answer(port: int, expected: Any) -> None:
    url = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + PATIENCE
    answer = None
    while answer != expected:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as response:
            answer = json.load(response)


def test_web_server_shows_what_the_operator_knows(port: int, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "app.log"
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        [obj] = cluster.apply(EXAMPLE / "obj.yaml")
        with serving(port, cluster.kubeconfig, log) as process:
            wait_for_answer(port, {obj["metadata"]["name"]: obj["spec"]})
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
    # By itself, the web server does the same for the signal that has stopped it.
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_web_server_does_not_start_if_the_operator_cannot(port: int, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "app.log"
    with serving(port, tmp_path / "absent.yaml", log) as process:
        process.wait(PATIENCE)
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "LoginError" in log.read_text()


def test_web_server_stops_if_the_operator_fails(port: int, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "app.log"
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        with serving(port, cluster.kubeconfig, log) as process:
            wait_for_answer(port, {})
            cluster.faults.inject(401)
            cluster.faults.cut_watches()
            process.wait(PATIENCE)
    assert "LoginError" in log.read_text()
