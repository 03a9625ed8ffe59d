"""The example of the admission: on a laptop with what `kubectl` says, and in a cluster with only what is permitted."""
from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from kopf.testing import LocalCluster
from tests.patience import PATIENCE
from tests.ports import find_free_port

EXAMPLE = pathlib.Path(__file__).parent.parent.parent / "examples" / "admission"
MANAGED = "kopfexamples.kopf.dev"
NAMESPACE = "kopfexample"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        yield cluster


def wait_until(condition: Callable[[], object], log: pathlib.Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@contextlib.contextmanager
def running(kubeconfig: object, log: pathlib.Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), **env}
    command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", str(EXAMPLE / "handlers.py")]
    with log.open("wb") as output, subprocess.Popen(command, env=environ, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)
    assert process.returncode == 0, log.read_text()


class Kubectl:
    def __init__(self, program: str, cluster: LocalCluster) -> None:
        self._command = [program, "--kubeconfig", str(cluster.kubeconfig)]

    def __call__(self, *args: str) -> tuple[str, str]:
        """Get what the command prints, and what it complains about."""
        result = subprocess.run([*self._command, *args], capture_output=True, text=True, timeout=PATIENCE, check=False)
        return result.stdout, result.stderr

    def is_published(self) -> bool:
        kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        output, _ = self("get", kinds, "-o", "jsonpath={.items[*].webhooks[*].name}")
        return len(output.split()) == 4

    def check(self) -> None:
        """Do what the documentation suggests."""
        output, errors = self("create", "-f", str(EXAMPLE / "good.yaml"))
        assert output == "kopfexample.kopf.dev/good created\n"
        assert errors == "Warning: It will run for 2d. Are you sure?\n"
        output, errors = self("create", "-f", str(EXAMPLE / "bad.yaml"))
        denial = f'admission webhook "check-duration.{MANAGED}" denied the request'
        assert errors.endswith(f"{denial}: The duration must be a number with s, m, h, or d: not 'long'.\n")
        self("create", "-f", str(EXAMPLE / "default.yaml"))
        output, errors = self("get", "kex", "default", "-o", "yaml")
        obj = yaml.safe_load(output)
        assert obj["spec"] == {"duration": "1m"}
        assert obj["metadata"]["annotations"]["kopf.dev/created-by"]
        output, errors = self("delete", "kex", "good", "default")
        assert output == 'kopfexample.kopf.dev "default" deleted\n'
        assert "good is protected. To delete it, remove the label first." in errors


def test_on_a_laptop(cluster: LocalCluster, kubectl: str, tmp_path: pathlib.Path) -> None:
    run = Kubectl(kubectl, cluster)
    with running(cluster.kubeconfig, tmp_path / "log") as _:
        wait_until(run.is_published, tmp_path / "log")
        run.check()
    assert not run.is_published()
    output, _ = run("delete", "kex", "good")
    assert output == 'kopfexample.kopf.dev "good" deleted\n'


def test_in_a_cluster(cluster: LocalCluster, kubectl: str, tmp_path: pathlib.Path) -> None:
    run = Kubectl(kubectl, cluster)
    for name in ("rbac.yaml", "service.yaml", "deployment.yaml"):
        cluster.apply(EXAMPLE / "in-cluster" / name)
    port, log = find_free_port(), tmp_path / "log"
    cluster.register_service(NAMESPACE, "kopfexample-webhooks", "127.0.0.1", port)
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    token = cluster.create_token(NAMESPACE, "kopfexample-operator")
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    kubeconfig = tmp_path / "kubeconfig.yaml"
    kubeconfig.write_text(yaml.safe_dump(config))
    with running(kubeconfig, log, POD_NAMESPACE=NAMESPACE, WEBHOOK_PORT=str(port)) as _:
        wait_until(run.is_published, log)
        run.check()
    denials = {key: count for key, count in cluster.counters.items() if key[2] == 403 and "webhook" in key[1]}
    assert denials == {}, log.read_text()
