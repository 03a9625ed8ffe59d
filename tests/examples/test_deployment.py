"""The example of a deployment: its manifests are accepted, its permissions are enough and none is superfluous."""

from __future__ import annotations

import json
import pathlib
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from kopf.testing import LocalCluster
from tests.cli.processes import Process
from tests.examples.conftest import EXAMPLES, wait_until, write_kubeconfig
from tests.forging import Forge
from tests.patience import PATIENCE

EXAMPLE = EXAMPLES / "deployment"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(authorization="rbac", simulate=True) as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.apply(EXAMPLE / "rbac.yaml")
        yield cluster


def parse_command() -> list[str]:
    """Take the command of the image, as it would be run here: with the sources from here, and at any free port."""
    [line] = [line for line in (EXAMPLE / "Dockerfile").read_text().splitlines() if line.startswith("CMD ")]
    command: list[str] = json.loads(line.removeprefix("CMD "))
    return command


def is_healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE) as response:
        return bool(response.status == 200)


def list_granted() -> set[tuple[str, str]]:
    [role] = [doc for doc in yaml.safe_load_all((EXAMPLE / "rbac.yaml").read_text()) if doc["kind"] == "ClusterRole"]
    return {(verb, name) for rule in role["rules"] for verb in rule["verbs"] for name in rule["resources"]}


def test_permissions_are_those_needed(cluster: LocalCluster, tmp_path: pathlib.Path, port: int) -> None:
    [deployment] = yaml.safe_load_all((EXAMPLE / "deployment.yaml").read_text())
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    kubeconfig = write_kubeconfig(cluster, deployment["metadata"]["namespace"], account, tmp_path / "kubeconfig.yaml")
    program, *args = parse_command()
    assert program == "kopf"
    args = [arg.replace("/src/", f"{EXAMPLE}/").replace("0.0.0.0:8080", f"127.0.0.1:{port}") for arg in args]
    cluster.reset_counters()
    env = {"KUBECONFIG": str(kubeconfig)}
    with Process(*args, cwd=tmp_path, log=tmp_path / "operator.log", env=env) as operator:
        cluster.apply(EXAMPLE / "obj.yaml")
        wait_until(lambda: cluster.get("kopfexamples", "example").get("status", {}).get("create_fn"))
        wait_until(lambda: cluster.get("jobs", "example-job")["status"].get("succeeded"))
        wait_until(lambda: [e for e in cluster.list("events") if e["reason"] == "Started"])
        wait_until(lambda: is_healthy(port))
        granted = {(verb, name) for verb, name, code in cluster.counters if code < 400}
        cluster.delete("kopfexamples", "example")
        wait_until(lambda: not cluster.list("jobs"))
        assert operator.stop() == 0

    lines = [json.loads(line) for line in operator.output.splitlines()]
    # On a busy machine, the operator can tell that its event loop has waited for the processor.
    told = [line for line in lines if not line["message"].startswith("The event loop ")]
    assert not [line for line in told if line["severity"] in ("error", "warn", "warning", "fatal")]
    needless = list_granted() - granted - {("patch", "events")}  # those are of repeated events only
    assert not needless


def test_permissions_are_those_that_are_found_out(forge: Forge) -> None:
    found_out = forge.run("rbac", EXAMPLE / "handlers.py", "--crds", EXAMPLE / "crd.yaml")
    [role] = yaml.safe_load_all(found_out.stdout)
    found = {(verb, name) for rule in role["rules"] for verb in rule["verbs"] for name in rule["resources"]}
    assert found == list_granted()


@pytest.mark.parametrize("name", ["crd.yaml", "rbac.yaml", "deployment.yaml", "obj.yaml"])
def test_manifests_are_valid(cluster: LocalCluster, kubectl: str, name: str) -> None:
    args = ["apply", "--validate=strict", "-f", str(EXAMPLE / name)]
    command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), *args]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr


def test_pods_of_the_deployment_run(cluster: LocalCluster, kubectl: str) -> None:
    cluster.apply(EXAMPLE / "deployment.yaml")
    command = [
        kubectl,
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--namespace=kopfexample",
        "rollout",
        "status",
        "deployment/kopfexample-operator",
    ]
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
