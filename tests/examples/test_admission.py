"""The example of the admission: on a laptop with what `kubectl` says, and in a cluster with only what is permitted."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from kopf.testing import LocalCluster
from tests.cli.processes import Process
from tests.examples.conftest import EXAMPLES, wait_until, write_kubeconfig
from tests.forging import Forge
from tests.patience import PATIENCE

EXAMPLE = EXAMPLES / "admission"
MANAGED = "kopfexamples.kopf.dev"
NAMESPACE = "kopfexample"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        yield cluster


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


def check(run: Kubectl, folder: pathlib.Path, **env: str) -> Process:
    """Run the operator, do what the documentation suggests, and stop it."""
    handlers = str(EXAMPLE / "handlers.py")
    with Process("run", "--all-namespaces", handlers, cwd=folder, log=folder / "log", env=env) as operator:
        wait_until(run.is_published)
        run.check()
        assert operator.stop() == 0
    return operator


def test_on_a_laptop(cluster: LocalCluster, kubectl: str, tmp_path: pathlib.Path) -> None:
    run = Kubectl(kubectl, cluster)
    check(run, tmp_path, KUBECONFIG=str(cluster.kubeconfig))
    assert not run.is_published()
    output, _ = run("delete", "kex", "good")
    assert output == 'kopfexample.kopf.dev "good" deleted\n'


def test_permissions_are_those_that_are_found_out(forge: Forge) -> None:
    output = forge.run("rbac", EXAMPLE / "handlers.py", "--crds", EXAMPLE / "crd.yaml", "--into", NAMESPACE).stdout
    written = (EXAMPLE / "in-cluster" / "rbac.yaml").read_text()
    found, expected = (
        {
            (role["kind"], verb, name)
            for role in yaml.safe_load_all(text)
            for rule in role.get("rules", ())
            for verb in rule["verbs"]
            for name in rule["resources"]
        }
        for text in (output, written)
    )
    assert found == expected


def test_in_a_cluster(cluster: LocalCluster, kubectl: str, tmp_path: pathlib.Path, port: int) -> None:
    for name in ("rbac.yaml", "service.yaml", "deployment.yaml"):
        cluster.apply(EXAMPLE / "in-cluster" / name)
    cluster.register_service(NAMESPACE, "kopfexample-webhooks", "127.0.0.1", port)
    kubeconfig = write_kubeconfig(cluster, NAMESPACE, "kopfexample-operator", tmp_path / "kubeconfig.yaml")
    env = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE, "WEBHOOK_PORT": str(port)}
    operator = check(Kubectl(kubectl, cluster), tmp_path, **env)
    denials = {key: count for key, count in cluster.counters.items() if key[2] == 403 and "webhook" in key[1]}
    assert denials == {}, operator.output
