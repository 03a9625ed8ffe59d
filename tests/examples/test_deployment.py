"""The example of a deployment: its manifests are accepted, its permissions are enough and none is superfluous."""
from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from kopf.testing import LocalCluster
from tests.patience import PATIENCE
from tests.ports import find_free_port

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "deployment"
PATCH = {"spec": {"duration": 7}}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(authorization="rbac", simulate=True) as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.apply(EXAMPLE / "rbac.yaml")
        yield cluster


def wait_until(condition: Callable[[], object], operator: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this has never happened"
        assert operator is None or operator.poll() is None, "the operator has ended"
        time.sleep(0.05)


def parse_command() -> list[str]:
    """Take the command of the image, as it would be run here: with the sources from here, and at any free port."""
    [line] = [line for line in (EXAMPLE / "Dockerfile").read_text().splitlines() if line.startswith("CMD ")]
    command: list[str] = json.loads(line.removeprefix("CMD "))
    return command


@contextlib.contextmanager
def running(kubeconfig: pathlib.Path, log: pathlib.Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    program, *args = parse_command()
    assert program == "kopf"
    args = [arg.replace("/src/", f"{EXAMPLE}/").replace("0.0.0.0:8080", f"127.0.0.1:{port}") for arg in args]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-m", "kopf", *args]
    with log.open("wb") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def write_kubeconfig(cluster: LocalCluster, path: pathlib.Path) -> pathlib.Path:
    """Make a kubeconfig of the service account that the pods of the deployment run with."""
    [deployment] = yaml.safe_load_all((EXAMPLE / "deployment.yaml").read_text())
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    token = cluster.create_token(deployment["metadata"]["namespace"], account)
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path.write_text(yaml.safe_dump(config))
    return path


def is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


def list_granted() -> set[tuple[str, str]]:
    [role] = [doc for doc in yaml.safe_load_all((EXAMPLE / "rbac.yaml").read_text()) if doc["kind"] == "ClusterRole"]
    return {(verb, name) for rule in role["rules"] for verb in rule["verbs"] for name in rule["resources"]}


def test_permissions_are_those_needed(cluster: LocalCluster, tmp_path: pathlib.Path, kubectl: str) -> None:
    log = tmp_path / "operator.log"
    kubeconfig = write_kubeconfig(cluster, tmp_path / "kubeconfig.yaml")
    port = find_free_port()

    def get(*args: str) -> Any:
        command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), "get", *args, "--ignore-not-found", "-ojson"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout or "null")

    cluster.reset_counters()
    with running(kubeconfig, log, port) as operator:
        cluster.apply(EXAMPLE / "obj.yaml")
        wait_until(lambda: (get("kopfexamples", "example") or {}).get("status", {}).get("create_fn"), operator)
        wait_until(lambda: get("jobs", "example-job")["status"].get("succeeded"), operator)
        wait_until(lambda: [e for e in get("events")["items"] if e["reason"] == "Started"], operator)
        wait_until(lambda: is_healthy(port), operator)
        granted = {verb for verb, code in collect_verbs(cluster) if code < 400}
        subprocess.run([kubectl, "--kubeconfig", str(cluster.kubeconfig), "delete", "-f", str(EXAMPLE / "obj.yaml")],
                       check=True, capture_output=True, timeout=PATIENCE)
        wait_until(lambda: get("jobs", "example-job") is None, operator)
        operator.terminate()
        assert operator.wait(PATIENCE) == 0

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert not [line for line in lines if line["severity"] in ("error", "warn", "warning", "fatal")]
    needless = list_granted() - granted - {("patch", "events")}  # those are of repeated events only
    assert not needless


def collect_verbs(cluster: LocalCluster) -> collections.Counter[tuple[tuple[str, str], int]]:
    return collections.Counter({((verb, name), code): n for (verb, name, code), n in cluster.counters.items()})


@pytest.mark.parametrize("name", ["crd.yaml", "rbac.yaml", "deployment.yaml", "obj.yaml"])
def test_manifests_are_valid(cluster: LocalCluster, kubectl: str, name: str) -> None:
    args = ["apply", "--validate=strict", "-f", str(EXAMPLE / name)]
    command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), *args]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr


def test_pods_of_the_deployment_run(cluster: LocalCluster, kubectl: str) -> None:
    cluster.apply(EXAMPLE / "deployment.yaml")
    command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), "--namespace=kopfexample", "rollout", "status",
               "deployment/kopfexample-operator", "--timeout=60s"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert "successfully rolled out" in result.stdout, result.stderr


def test_image_has_everything() -> None:
    """All that the image copies does exist, and the probe is where the manifest says."""
    lines = [line.split() for line in (EXAMPLE / "Dockerfile").read_text().splitlines()]
    copied = [words[1] for words in lines if words and words[0] == "COPY"]
    assert copied == ["requirements.txt", "handlers.py"]
    assert all((EXAMPLE / name).is_file() for name in copied)
    [deployment] = yaml.safe_load_all((EXAMPLE / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    path = container["livenessProbe"]["httpGet"]["path"]
    assert f"--liveness=http://0.0.0.0:{port['containerPort']}{path}" in parse_command()
