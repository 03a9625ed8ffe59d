"""What is granted to an operator in a cluster with authorization."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.connecting import connect_in_memory
from tests.behaviour.resources import define_namespaces, make_crd

RBAC = "rbac.authorization.k8s.io"


class Roles:
    """What is granted to the operator so far."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._rules: dict[str | None, list[Any]] = {}

    def grant(self, *rules: Any, namespace: str | None = None) -> None:
        self._rules.setdefault(namespace, []).extend(rules)
        prefix = "Cluster" if namespace is None else ""
        metadata = {"name": "operator"} | ({} if namespace is None else {"namespace": namespace})
        subject = {"kind": "ServiceAccount", "name": "operator", "namespace": "default"}
        role = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": "operator"}
        self._cluster.apply(
            {"apiVersion": f"{RBAC}/v1", "kind": f"{prefix}Role", "metadata": metadata, "rules": self._rules[namespace]}
        )
        self._cluster.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{prefix}RoleBinding",
                "metadata": metadata,
                "roleRef": role,
                "subjects": [subject],
            }
        )

    def replace(self, *rules: Any) -> None:
        """Grant these in the whole cluster, and nothing else."""
        self._rules[None] = []
        self.grant(*rules)

    def follow(self, message: str, namespace: str | None = None) -> None:
        """Add the rules that the message advises to add."""
        for rule in re.findall(r"{.*?}", message):
            self.grant(yaml.safe_load(rule), namespace=namespace)


@pytest.fixture
async def cluster(shared_certificates: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalCluster]:
    """A cluster in which the operator may do nothing but what is granted."""
    async with LocalCluster(authorization="rbac") as cluster:
        connect_in_memory(cluster, monkeypatch)
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        cluster.apply(make_crd("KopfStatusExample", "kopfstatusexamples", status=True))
        define_namespaces(cluster, "ns1", "ns2")
        cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator", "namespace": "default"}}
        )
        yield cluster


@pytest.fixture
def registry(cluster: LocalCluster) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        token = cluster.create_token("default", "operator", lifetime=1e9)
        return kopf.ConnectionInfo(server=cluster.url, ca_data=cluster.ca_data, token=token)

    return registry


@pytest.fixture
def roles(cluster: LocalCluster) -> Roles:
    return Roles(cluster)
