"""The example of a web application with an operator inside: they live and die together."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

from kopf.testing import LocalCluster
from tests.examples.conftest import EXAMPLES, wait_until
from tests.patience import PATIENCE

EXAMPLE = EXAMPLES / "asgi"

# ``uvicorn``, but operators that lose their credentials do not hope for better ones for a minute.
RUN = "import kopf._operator.login as login, uvicorn; login._RENEWAL_BACKOFFS = (0.1,); uvicorn.main()"


@contextlib.contextmanager
def serving(port: int, kubeconfig: pathlib.Path, log: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", RUN, "--app-dir", str(EXAMPLE), "app:app", "--port", str(port)]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(log.parent)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def get_answer(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as response:
        return json.load(response)


def test_web_server_shows_what_the_operator_knows(port: int, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "app.log"
    with LocalCluster() as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        [obj] = cluster.apply(EXAMPLE / "obj.yaml")
        with serving(port, cluster.kubeconfig, log) as process:
            wait_until(lambda: get_answer(port) == {obj["metadata"]["name"]: obj["spec"]})
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
            wait_until(lambda: get_answer(port) == {})
            cluster.faults.inject(401)
            cluster.faults.cut_watches()
            process.wait(PATIENCE)
    assert "LoginError" in log.read_text()
