"""The user of ``kopf demo``: changes the shops, and observes them, in the cluster and outside."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster


class Shops:
    """The shops. Each method raises `kopf_cluster.APIStatus` or :class:`KeyError` if something does not exist yet."""

    def __init__(self, cluster: LocalCluster, receipts: pathlib.Path) -> None:
        self._cluster = cluster
        self._receipts = receipts

    def apply(self, name: str, replicas: int = 1) -> None:
        """Create or change a shop."""
        spec = {"image": "example.com/shop:1", "replicas": replicas}
        self._cluster.apply({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec})

    def list_bought(self) -> list[str]:
        """List the domains, as often as they were bought. Raises :class:`OSError` if there are none."""
        return self._receipts.read_text().split()

    def count_children(self, name: str) -> int:
        """Count the Deployments and Services of the shop."""
        children = [*self._cluster.list("deployments"), *self._cluster.list("services")]
        return sum(child["metadata"]["name"] == name for child in children)

    def count_replicas(self, name: str) -> Any:
        """Give the number of replicas in the Deployment of the shop."""
        return self._cluster.get("deployment", name)["spec"]["replicas"]

    def get_service(self, name: str) -> Any:
        """Give the UID of the Service of the shop."""
        return self._cluster.get("service", name)["metadata"]["uid"]

    def get_backup(self, name: str) -> Any:
        """Give the day of the latest backup."""
        return self._cluster.get("shop", name)["status"]["backup"]

    def find_leader(self) -> str:
        """Give the name of the replica that has the Lease."""
        return str(self._cluster.get("lease", "shop")["spec"]["holderIdentity"]).partition("_")[0]


def ask(url: str, token: str, content: object = None) -> str:
    """Ask the operator at its console or its metrics, as a browser does. Raises :class:`OSError`."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    with opener.open(urllib.request.Request(url, data, headers), timeout=10) as response:
        return str(response.read().decode())
