"""What is granted to an operator in a cluster with authorization."""

from __future__ import annotations

import re
from typing import Any

import yaml

from kopf_cluster import LocalCluster

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
        for rule in re.findall(r"- {.*?}", message):
            self.grant(*yaml.safe_load(rule), namespace=namespace)
