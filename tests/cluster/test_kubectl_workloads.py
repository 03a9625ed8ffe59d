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


def test_jobs_and_nodes(k: Kubectl) -> None:
    k("create", "job", "one", "--image=busybox", "--", "true")
    k("wait", "--for=condition=Complete", "job/one", "--timeout=20s")
    k("wait", "--for=condition=Ready", "node/kopf-node", "--timeout=20s")
    assert k("get", "nodes", "--no-headers").split()[:2] == ["kopf-node", "Ready"]
    k("run", "pod", "--image=busybox")
    k("wait", "--for=condition=Ready", "pod/pod", "--timeout=20s")
