"""
What ``kubectl`` sends in protobuf only: debugging containers and pods, decisions on requests for certificates.
"""
from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from kopf_cluster import LocalCluster

from .conftest import make_request
from .kubectl import Kubectl


@pytest.fixture
def k(kubectl: str, tmp_path: pathlib.Path) -> Iterator[Kubectl]:
    with LocalCluster(simulate=True) as cluster:
        yield Kubectl(kubectl, cluster, tmp_path)


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
