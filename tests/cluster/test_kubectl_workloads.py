"""
What ``kubectl`` waits for, in a simulated cluster and in real time.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from kopf_cluster import LocalCluster

from .conftest import make_request

TIMEOUT = 30  # seconds per call; only for what hangs


class Kubectl:
    def __init__(self, path: str, cluster: LocalCluster, home: pathlib.Path) -> None:
        super().__init__()
        self._path = path
        self._env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(home),
                     "GOGC": os.environ["GOGC"]}

    def __call__(self, *args: str) -> str:
        done = subprocess.run([self._path, *args], env=self._env, text=True, capture_output=True, timeout=TIMEOUT,
                              check=False)
        assert done.returncode == 0, done
        return done.stdout.strip()


@pytest.fixture
def k(kubectl: str, tmp_path: pathlib.Path) -> Iterator[Kubectl]:
    with LocalCluster(simulate=True) as cluster:
        yield Kubectl(kubectl, cluster, tmp_path)


def test_rollouts(k: Kubectl) -> None:
    k("create", "deployment", "web", "--image=nginx:1", "--replicas=2", "--port=80")
    assert k("rollout", "status", "deployment/web").endswith('deployment "web" successfully rolled out')
    k("expose", "deployment", "web")
    k("set", "image", "deployment/web", "nginx=nginx:2")
    k("rollout", "status", "deployment/web")
    assert [line.split()[0] for line in k("rollout", "history", "deployment/web").splitlines()[2:]] == ["1", "2"]
    k("rollout", "undo", "deployment/web")
    k("rollout", "status", "deployment/web")
    images = k("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[*].image}")
    assert images == "nginx:1 nginx:1"
    k("rollout", "restart", "deployment/web")
    k("rollout", "status", "deployment/web")
    k("wait", "--for=condition=Available", "deployment/web", "--timeout=20s")
    assert "web" in k("get", "endpoints", "web")


SET = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web, annotations: {{kubernetes.io/change-cause: "{cause}"}}}}
spec:
  {extra}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: main, image: "{image}"}}]}}
"""


@pytest.mark.parametrize(("kind", "extra"), [("DaemonSet", ""), ("StatefulSet", "serviceName: web")])
def test_history_of_sets(k: Kubectl, tmp_path: pathlib.Path, kind: str, extra: str) -> None:
    """The cause of a change is what the annotation says then; an old revision comes back as the latest one."""
    path = tmp_path / "set.yaml"
    what = f"{kind.lower()}/web"
    for image, cause in (("nginx:1", "first"), ("nginx:2", "second")):
        path.write_text(SET.format(kind=kind, extra=extra, image=image, cause=cause))
        k("apply", "-f", str(path))
        k("rollout", "status", what, "--timeout=20s")
    history = [line.split() for line in k("rollout", "history", what).splitlines()[2:]]
    assert history == [["1", "first"], ["2", "second"]]
    assert "nginx:1" in k("rollout", "history", what, "--revision=1")
    assert "rolled back" in k("rollout", "undo", what)
    k("rollout", "status", what, "--timeout=20s")
    assert k("get", what, "-o", "jsonpath={..image}") == "nginx:1"
    assert k("get", "pods", "-l", "app=web", "-o", "jsonpath={..spec.containers[0].image}") == "nginx:1"
    assert [line.split()[0] for line in k("rollout", "history", what).splitlines()[2:]] == ["2", "3"]
    k("rollout", "undo", what, "--to-revision=2")
    k("rollout", "status", what, "--timeout=20s")
    assert k("get", what, "-o", "jsonpath={..image}") == "nginx:2"


def test_causes_of_changes(k: Kubectl) -> None:
    k("create", "deployment", "web", "--image=nginx:1")
    k("annotate", "deployment/web", "kubernetes.io/change-cause=the first one")
    k("rollout", "status", "deployment/web")
    k("set", "image", "deployment/web", "nginx=nginx:2")
    k("annotate", "deployment/web", "kubernetes.io/change-cause=the second one")
    k("rollout", "status", "deployment/web")
    assert [line.split(maxsplit=1) for line in k("rollout", "history", "deployment/web").splitlines()[2:]] == [
        ["1", "the first one"], ["2", "the second one"]]


def test_replication_controllers(k: Kubectl, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rc.yaml"
    path.write_text(
        "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec: {replicas: 2, template: "
        "{metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: nginx}]}}}")
    k("apply", "-f", str(path))
    k("wait", "--for=jsonpath={.status.readyReplicas}=2", "rc/web", "--timeout=20s")
    k("scale", "rc/web", "--replicas=3")
    k("wait", "--for=jsonpath={.status.availableReplicas}=3", "rc/web", "--timeout=20s")
    assert k("get", "rc/web", "--no-headers").split()[:4] == ["web", "3", "3", "3"]
    k("delete", "rc/web")
    k("wait", "--for=delete", "pods", "-l", "app=web", "--timeout=20s")


def test_jobs_and_nodes(k: Kubectl) -> None:
    k("create", "job", "one", "--image=busybox", "--", "true")
    k("wait", "--for=condition=Complete", "job/one", "--timeout=20s")
    k("wait", "--for=condition=Ready", "node/kopf-node", "--timeout=20s")
    assert k("get", "nodes", "--no-headers").split()[:2] == ["kopf-node", "Ready"]
    k("run", "pod", "--image=busybox")
    k("wait", "--for=condition=Ready", "pod/pod", "--timeout=20s")


def test_debugging(k: Kubectl) -> None:
    """The debugging containers and pods are sent in protobuf, with whatever a profile adds to them."""
    debug = ("debug", "--image=busybox", "--attach=false")
    k("run", "web", "--image=nginx")
    k("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    k(*debug, "web", "-c", "extra", "--profile=netadmin")
    added = "jsonpath={.spec.ephemeralContainers[0].securityContext.capabilities.add}"
    assert k("get", "pod", "web", "-o", added) == '["NET_ADMIN","NET_RAW"]'
    k(*debug, "web", "--copy-to=copy", "-c", "extra", "--share-processes", "--profile=restricted")
    assert k("get", "pod", "copy", "-o", "jsonpath={.spec.containers[*].name}") == "web extra"
    assert k("get", "pod", "copy", "-o", "jsonpath={.spec.containers[1].securityContext.runAsNonRoot}") == "true"
    k(*debug, "node/kopf-node", "--profile=sysadmin")
    node = "jsonpath={.items[?(@.spec.hostPID)].spec.volumes[?(@.name=='host-root')].hostPath.path}"
    assert k("get", "pods", "-o", node) == "/"


@pytest.mark.parametrize(("command", "condition"), [("approve", "Approved"), ("deny", "Denied")])
def test_decisions_on_certificate_requests(k: Kubectl, tmp_path: pathlib.Path, command: str, condition: str) -> None:
    path = tmp_path / "csr.yaml"
    path.write_text(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: jane}\n"
        f"spec: {{request: {make_request()}, signerName: example.com/signer, usages: [client auth]}}")
    k("create", "-f", str(path))
    k("certificate", command, "jane")
    assert k("get", "csr", "jane", "--no-headers").split()[-1] == condition
